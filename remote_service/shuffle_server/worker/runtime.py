"""The worker of a process: store, memory, data endpoint, put together and taken apart again."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import ClassVar, Protocol

import pyarrow as pa

from shuffle_api.caretaker import Caretaker
from shuffle_api.clock import LOOKS_PER_TIMEOUT
from shuffle_api.errors import InvalidArgument, ShuffleError
from shuffle_api.ids import ShuffleId, registry_of
from shuffle_api.periodic import PeriodicTask, StreamThread
from shuffle_api.values import WorkerInfo, parse_labels
from shuffle_server.announced import announced_host
from shuffle_server.connection_guard import Bounds, ConnectionGuard
from shuffle_server.journals import Journal, Journals
from shuffle_server.observe.figures import WorkerSources
from shuffle_server.observe.instruments import Instruments
from shuffle_server.observe.worker_state import relay_status
from shuffle_server.options import ServerOptions, data_listen
from shuffle_server.security import ServerSecurity
from shuffle_server.store.compaction_model import CompactionOptions
from shuffle_server.store.device import parse_device
from shuffle_server.store.directories import Claims
from shuffle_server.store.disk_thread import DiskThread
from shuffle_server.store.object_store import ObjectStore
from shuffle_server.store.options import StoreOptions
from shuffle_server.store.store import Store
from shuffle_server.worker.copier import Copier
from shuffle_server.worker.endpoint import DataServices, FlightEndpoint, calls_bound
from shuffle_server.worker.local_file_handler import LocalFileHandler
from shuffle_server.worker.push_handler import PutOptions
from shuffle_server.worker.registry_view import RegistryView
from shuffle_server.worker.relay.channel_relay import ChannelRelay
from shuffle_server.worker.relay.relay import Relay, RelayStreams
from shuffle_server.worker.replication import Place, Replication
from shuffle_server.worker.worker import Worker
from shuffle_transport.pool import BufferPool

log = logging.getLogger(__name__)

DATA_GRACE = 10.0
MAINTENANCE_SECONDS = 5.0
TIDY_SECONDS = 2.0  # for which housekeeping waits for the disks
COLD_SECONDS = 1.0  # between two looks for cold shuffles
RECLAIM_SECONDS = 0.5  # between two looks for memory that is reserved and not used, while somebody waits for some
LEAST_UNREAD = 64 << 20  # bytes that all connections may have sent and no call has taken up
MERGE_SECONDS = 1.0  # between two looks whether the worker stops


class StoreTasks:
    """What is done for a store, and for the memory beside it, while nobody asks, in a thread of its own each.

    :ivar evictions: of map outputs of cold shuffles to the object store: an upload takes as long as it takes.
    """

    def __init__(self, store: Store, pool: BufferPool, tier_after: float) -> None:
        self._store, self._tier_after = store, tier_after
        self.evictions = PeriodicTask("cold", self._evict_cold, COLD_SECONDS)
        self._merges = PeriodicTask("merge", self._merge, MERGE_SECONDS)
        self._reclaims = PeriodicTask("reclaim", pool.reclaim, RECLAIM_SECONDS)

    def start(self, *, evictions: bool, merges: bool) -> None:
        self._reclaims.start()
        if evictions:
            self.evictions.start()
        if merges:
            self._merges.start()

    def stop(self) -> None:
        """Begin nothing more."""
        self.evictions.closing.set()
        self._merges.closing.set()
        self._reclaims.close()

    def close(self) -> None:
        self.evictions.close(DATA_GRACE)  # an upload that is cut is repeated after the next start
        self._merges.close(DATA_GRACE)

    def _evict_cold(self) -> None:
        self._store.evict_cold(self._tier_after, self.evictions.closing.is_set)

    def _merge(self) -> float:
        """Pulls go on meanwhile."""
        compaction = self._store.compaction
        compaction.wanted.wait(MERGE_SECONDS)
        compaction.merge(self._merges.closing.is_set)
        return 0.0


class WorkerRuntime:
    """A store from its constructor on; serves from `serve` to `stop`; `close` at the end.

    :param claims: of the data directories, which are locked.
    :raises StorageFailed: a data directory cannot be used.
    """

    role: ClassVar[str] = "worker"

    def __init__(self, options: ServerOptions, instruments: Instruments, claims: Claims) -> None:
        self._options, self._instruments = options, instruments
        self.id = claims.identify()
        self.store = Store(
            *(disk.root / "worker" for disk in claims.disks),
            options=_store_options(options),
            tier=ObjectStore(options.tier, self.id) if options.tier else None,
            claims=claims,
        )
        first = claims.first
        self.journals = first.do("the journals", lambda: Journals(first.root / "journals", self.store.later))
        self.removals = Caretaker("removals")
        self.pool = BufferPool(options.memory)
        self.calls = calls_bound(options.app_max_calls)
        self.relay = Relay(options.relay_timeout)
        self.channels = ChannelRelay(
            self.pool, options.relay_timeout, options.overload_timeout, functools.partial(_note_refused, instruments)
        )
        self._tasks = StoreTasks(self.store, self.pool, options.tier_after)

    def serve(self, registry_view: RegistryView, security: ServerSecurity, place: Place, first: DiskThread) -> Worker:
        """Listen. Raises InvalidArgument when it cannot.

        :param place: where copies of map outputs go.
        :param first: the first data directory, for the nonce of clients on this host.
        """
        options = self._options
        listen = data_listen(options)
        labels = parse_labels(options.label)
        info = WorkerInfo(self.id, announced_host(options.advertise, listen), listen.port, labels=labels)
        self._copier = Copier(self.store, security.for_worker(self.id))
        self.replication = Replication(lambda: self.worker.info, registry_view, place, self._copier)
        self.worker = Worker(info, self.store, registry_view, self.pool, self._instruments, self.replication)
        self.worker.relayed = lambda: relay_status(self.relay.statistics(), self.channels.statistics())
        put = PutOptions(options.window, options.overload_timeout)
        try:
            nonce_file = first.root / "worker" / "nonce"
            local_files = first.do("the nonce", lambda: LocalFileHandler(self.worker, self.store, nonce_file))
            relay = RelayStreams(self.worker, self.relay)
            self.guard = ConnectionGuard(
                Bounds(
                    security.tokens is not None,
                    options.peer_max_connections,
                    options.peer_max_unread,
                    max(options.memory, LEAST_UNREAD),
                    options.peer_timeout,
                ),
                reserved=lambda: self.pool.used,
            )
            self._endpoint = FlightEndpoint(
                listen,
                self.worker,
                DataServices(put, local_files, relay, self.channels),
                security,
                self.guard,
                self.calls,
            )
        except (pa.ArrowException, OSError) as error:
            raise InvalidArgument(
                f"cannot listen on {listen}: {error}", remedy="choose another --data-listen address, or port 0"
            ) from error
        self.worker.info = replace(info, port=self._endpoint.port)
        self.guard.start(self._endpoint.port)
        self.store.start()
        self.removals.start()
        self._tasks.start(evictions=bool(options.tier), merges=bool(options.merge_below))
        return self.worker

    def held_shuffles(self) -> list[ShuffleId]:
        """The shuffles of which there may be files, or streams."""
        return self.store.catalog.shuffles()

    def held_shuffles_of(self, registry: str) -> list[ShuffleId]:
        """Those of one registry."""
        return [id for id in self.held_shuffles() if registry_of(id.app) == registry]

    def journal_of(self, registry: str) -> Journal:
        """In which the outputs of a registry here are recorded; one without an id if there are none."""
        if self.store.recovery.complete and not self.held_shuffles_of(registry):
            return Journal()
        return self.journals.of(registry)

    def remove_shuffle(self, shuffle: ShuffleId) -> None:
        """It is over: its streams end, its files go."""
        self.relay.remove(shuffle)
        self.store.remove_shuffle(shuffle)

    def drop_outputs(self, shuffles: Iterable[ShuffleId]) -> None:
        """All map outputs of these shuffles go, and none of them is over."""
        for shuffle in shuffles:
            for held in self.store.catalog.outputs(shuffle):
                self.store.remove_output(shuffle, held.output)

    def sources(
        self, absent: Callable[[], str], joined: Callable[[], Mapping[str, bool]] = lambda: {"": True}
    ) -> WorkerSources:
        """What monitoring asks; the arguments are those of WorkerSources."""
        return WorkerSources(self.pool, self.store, self.relay, self.channels, absent, self.guard, self.calls, joined)

    @property
    def look_seconds(self) -> float:
        """How often `maintain` is to be called."""
        limit = min(self._options.relay_timeout, self._options.disk_timeout)
        return min(MAINTENANCE_SECONDS, limit / LOOKS_PER_TIMEOUT)

    def maintain(self) -> None:
        """To be called every `look_seconds`."""
        self.relay.watch()
        self.store.close_idle()
        self.removals.wait(TIDY_SECONDS)
        self.store.maintain(self._options.staged_timeout, TIDY_SECONDS)

    def stop(self) -> bool:
        """End the streams. False when some stayed open: they die with the process."""
        self.relay.close()
        self.channels.close()
        self._tasks.stop()
        self.guard.close()
        # Arrow waits for the calls under way without a limit, and a peer may be stopped or cut off.
        ending = StreamThread("ending", self._endpoint.shutdown, lambda error: None)
        ending.start()
        ending.join(DATA_GRACE)
        if ending.is_alive():
            log.warning("streams are still open after %g s; they are cut, committed data is unharmed", DATA_GRACE)
        self.pool.close()
        self._copier.close()
        self._tasks.close()
        return not ending.is_alive()

    def close(self) -> None:
        """Close the files; committed outputs stay."""
        self.removals.stop(TIDY_SECONDS)
        self.store.close()


def _store_options(options: ServerOptions) -> StoreOptions:
    return StoreOptions(
        sync=options.durability == "fsynced",
        recycle=options.recycle,
        floor=options.free_floor / 100,
        app_max_bytes=options.app_max_bytes,
        app_max_attempts=options.app_max_attempts,
        compaction=CompactionOptions(options.merge_below, parse_device(options.device), options.page_cache),
        disk_timeout=options.disk_timeout,
    )


def _note_refused(instruments: Instruments, error: ShuffleError) -> None:
    instruments.refused("data", error)
    log.warning("channel refused: %s", error)


class Maintained(Protocol):
    """What has to be tidied now and then; `role` says what it is."""

    role: ClassVar[str]

    def maintain(self) -> None: ...


class MaintenanceTasks:
    """Has things tidied until `stop`, each by a task of its own: one that fails or waits holds up no other."""

    def __init__(self, seconds: float, *parts: Maintained) -> None:
        self._tasks = [PeriodicTask(f"{part.role}-housekeeping", part.maintain, seconds) for part in parts]
        for task in self._tasks:
            task.start()

    def stop(self) -> None:
        for task in self._tasks:
            task.close()
