"""The worker of a process: store, memory, data endpoint, put together and taken apart again."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from shuffle_api.clock import LOOKS_PER_TIMEOUT
from shuffle_api.errors import InvalidArgument, ShuffleError
from shuffle_api.ids import ShuffleId
from shuffle_api.values import WorkerInfo
from shuffle_server.observe.figures import WorkerSources
from shuffle_server.observe.instruments import Instruments
from shuffle_server.options import ServerOptions, split_address
from shuffle_server.security import ServerSecurity, peer_credentials
from shuffle_server.store.directories import split_directories
from shuffle_server.store.identity import claim_identity
from shuffle_server.store.store import Store
from shuffle_server.store.tier import Tier
from shuffle_server.worker.channel_relay import ChannelRelay
from shuffle_server.worker.coordinator import Coordinator
from shuffle_server.worker.copier import Copier
from shuffle_server.worker.endpoint import FlightEndpoint
from shuffle_server.worker.handover import HandOver
from shuffle_server.worker.ingest import PutOptions
from shuffle_server.worker.relay import Relay, RelayStreams
from shuffle_server.worker.replication import Place, Replication
from shuffle_server.worker.worker import Worker
from shuffle_transport.pool import BufferPool

log = logging.getLogger(__name__)

DATA_GRACE = 10.0
HOUSEKEEPING_SECONDS = 5.0
COLD_SECONDS = 1.0  # between two looks for cold shuffles
MERGE_SECONDS = 1.0  # between two looks whether the worker stops


class WorkerPart:
    """A store from its constructor on; serves from `serve` to `stop`; `close` at the end.

    :raises StorageFailed: the data directory cannot be used.
    """

    def __init__(self, options: ServerOptions, instruments: Instruments) -> None:
        self._options, self._instruments = options, instruments
        roots = split_directories(options.data_dir)
        self.id = claim_identity(roots)
        self._nonce_file = roots[0] / "worker" / "nonce"
        self.store = Store(
            *(each / "worker" for each in roots),
            sync=options.durability == "fsynced",
            recycle=options.recycle,
            floor=options.free_floor / 100,
            app_max_bytes=options.app_max_bytes,
            tier=Tier(options.tier, self.id) if options.tier else None,
            merge_below=options.merge_below,
        )
        self.pool = BufferPool(options.memory)
        self.relay = Relay(options.relay_timeout)
        self.channels = ChannelRelay(
            self.pool, options.relay_timeout, options.overload_timeout, functools.partial(_note_refused, instruments)
        )
        self._stop = threading.Event()
        self._mover: threading.Thread | None = None
        self._merger: threading.Thread | None = None

    def serve(self, coordinator: Coordinator, security: ServerSecurity, place: Place) -> Worker:
        """Listen. Raises InvalidArgument when it cannot.

        :param place: where copies of map outputs go.
        """
        options = self._options
        host, port = data_address(options)
        info = WorkerInfo(self.id, options.advertise or host, port)
        self._copier = Copier(self.store, peer_credentials(options))
        self.replication = Replication(lambda: self.worker.info, coordinator, place, self._copier)
        self.worker = Worker(info, self.store, coordinator, self.pool, self._instruments, self.replication)
        put = PutOptions(options.window, options.overload_timeout)
        try:
            hand_over = HandOver(self.worker, self.store, self._nonce_file)
            relay = RelayStreams(self.worker, self.relay, put)
            self._endpoint = FlightEndpoint(host, port, self.worker, put, security, hand_over, relay, self.channels)
        except (pa.ArrowException, OSError) as error:
            raise InvalidArgument(
                f"cannot listen on {host}:{port}: {error}", remedy="choose another --data-listen address, or port 0"
            ) from error
        self.worker.info = WorkerInfo(self.id, info.host, self._endpoint.port)
        if options.tier:
            self._mover = threading.Thread(target=self._move_cold, name="cold", daemon=True)
            self._mover.start()
        if options.merge_below:
            self._merger = threading.Thread(target=self._merge, name="merge", daemon=True)
            self._merger.start()
        return self.worker

    def held_shuffles(self) -> list[ShuffleId]:
        """The shuffles of which there may be files, or streams."""
        return self.store.catalog.shuffles()

    def remove_shuffle(self, shuffle: ShuffleId) -> None:
        """It is over: its streams end, its files go."""
        self.relay.remove(shuffle)
        self.store.remove_shuffle(shuffle)

    def _move_cold(self) -> None:
        """In a thread of its own: an upload takes as long as it takes."""
        while not self._stop.wait(COLD_SECONDS):
            try:
                self.store.move_cold(self._options.tier_after, self._stop.is_set)
            except Exception:  # the disks fill up if this thread ends
                log.exception("moving cold map outputs failed; it goes on with the next round")

    def _merge(self) -> None:
        """In a thread of its own: pulls go on meanwhile."""
        regions = self.store.regions
        while not self._stop.is_set():
            if not regions.wanted.wait(MERGE_SECONDS):
                continue
            try:
                regions.merge(self._stop.is_set)
            except Exception:  # pulls are slower without it, and right
                log.exception("merging small map outputs failed; it goes on with the next")

    def sources(self, absent: Callable[[], str], tells: Callable[[], bool] = lambda: True) -> WorkerSources:
        """What monitoring asks; the arguments are those of WorkerSources."""
        return WorkerSources(self.pool, self.store, self.relay, self.channels, absent, tells)

    @property
    def look_seconds(self) -> float:
        """How often `keep_house` is to be called."""
        return min(HOUSEKEEPING_SECONDS, self._options.relay_timeout / LOOKS_PER_TIMEOUT)

    def keep_house(self) -> None:
        """To be called every `look_seconds`."""
        self.relay.watch()
        self.store.close_idle()
        try:
            self.store.look()
            self.store.drop_idle(self._options.staged_timeout)
            self.store.empty_trash()
        except OSError as error:
            log.warning("what was removed cannot be deleted now: %s", error)

    def stop(self) -> bool:
        """End the streams. False when some stayed open: they die with the process."""
        self.relay.close()
        self.channels.close()
        self._stop.set()
        # Arrow waits for the calls under way without a limit, and a peer may be stopped or cut off.
        ending = threading.Thread(target=self._endpoint.shutdown, name="ending", daemon=True)
        ending.start()
        ending.join(DATA_GRACE)
        if ending.is_alive():
            log.warning("streams are still open after %g s; they are cut, committed data is unharmed", DATA_GRACE)
        self.pool.close()
        self._copier.close()
        if self._mover is not None:
            self._mover.join(DATA_GRACE)  # an upload that is cut is repeated after the next start
        if self._merger is not None:
            self._merger.join(DATA_GRACE)
        return not ending.is_alive()

    def close(self) -> None:
        """Close the files; committed outputs stay."""
        self.store.close()
        self.store.empty_trash()


def _note_refused(instruments: Instruments, error: ShuffleError) -> None:
    instruments.refused("data", error)
    log.warning("channel refused: %s", error)


class HouseKept(Protocol):
    """What has to be tidied now and then."""

    def keep_house(self) -> None: ...


class Housekeeper:
    """A thread that has things tidied, until `stop`."""

    def __init__(self, seconds: float, *parts: HouseKept) -> None:
        self._seconds, self._parts = seconds, parts
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._run, name="housekeeping")
        self.thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            for part in self._parts:
                try:
                    part.keep_house()
                except Exception:  # leases, and the deletion of what was removed, depend on the next round
                    log.exception("housekeeping failed; it goes on with the next round")

    def stop(self) -> None:
        self._stop.set()
        self.thread.join()


def data_address(options: ServerOptions) -> tuple[str, int]:
    """Where the data endpoint listens."""
    if options.data_listen:
        return split_address(options.data_listen, "--data-listen")
    return split_address(options.listen, "--listen")[0], 0
