"""The `hybrid` plugin: read while it is written, and again from the remote store."""

from __future__ import annotations

import logging
import os
import threading
import uuid
import weakref
from dataclasses import replace
from functools import partial
from typing import TypeVar

from shuffle_api.errors import (
    AttemptSuperseded,
    DeadlineExceeded,
    InvalidArgument,
    MapOutputLost,
    Overloaded,
    ServerUnreachable,
    ShuffleError,
    ShuttingDown,
    StreamBroken,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.interfaces import NO_OPTIONS, Options, ShuffleMaster, ShufflePlugin
from shuffle_api.options import parse_options
from shuffle_api.streaming import Guarantee
from shuffle_api.values import HYBRID, MapOutput, ShuffleHandle, ShuffleSpec
from shuffle_plugins.hybrid.options import HybridOptions
from shuffle_plugins.hybrid.reader import HybridReader
from shuffle_plugins.hybrid.result_partition import HybridResultPartition
from shuffle_plugins.hybrid.writer import HybridOutputFlusher, HybridWriter
from shuffle_plugins.pipelined.closing import close_all
from shuffle_plugins.pipelined.driver_registry import DriverRegistry
from shuffle_plugins.pipelined.endpoint import Endpoint
from shuffle_plugins.pipelined.producer_registry import ProducerLocation, ProducerRegistry, StreamConfig, Watcher
from shuffle_plugins.pipelined.source import Source
from shuffle_plugins.remote.master import RemoteMaster
from shuffle_plugins.remote.plugin import RemoteShuffle
from shuffle_plugins.remote.watch import LossWatch
from shuffle_transport.pool import PoolStatistics

log = logging.getLogger(__name__)

_AWAY = (ServerUnreachable, DeadlineExceeded, StreamBroken, ShuttingDown, Overloaded, AttemptSuperseded)
"""Why an attempt may not be offered to live readers, though it can be written."""

STREAM_CONFIG = StreamConfig(Guarantee.AT_MOST_ONCE)
"""Of the directory's shuffles: writers keep nothing for readers. The guarantees for readers come from the store."""
NAME = "hybrid"
_BETWEEN = "|"  # in no address


class DriverLocations:
    """What a reader asks the driver: where the writers of its shuffle are; and the connections to them.

    Asked of the directory at `address`, which is connected when it is needed: for what the store has, it is not.

    :param partitions: of the reader.
    """

    def __init__(self, endpoint: Endpoint, address: str, shuffle: ShuffleId, partitions: range) -> None:
        self._endpoint, self._address, self._shuffle, self._partitions = endpoint, address, shuffle, partitions
        self._reader = uuid.uuid4().hex
        self._registry: ProducerRegistry | None = None

    def watch(self, watcher: Watcher) -> None:
        """Be told how things are, and every change.

        :raises ShuffleError: the driver is not to be had.
        """
        self._registry = self._endpoint.registry(self._address, self._shuffle.app)
        self._registry.watch(self._shuffle, watcher)

    def connect(self, location: ProducerLocation) -> Source:
        """The blocks of a live attempt. Raises ShuffleError."""
        return self._endpoint.connect(self._shuffle, location, self._reader, 0, self._partitions, None)

    def unwatch(self, watcher: Watcher) -> None:
        """Be told no more."""
        if self._registry is not None:
            self._registry.unwatch(self._shuffle, watcher)


def join_handle(store: ShuffleHandle, live: str) -> ShuffleHandle:
    """A handle that names two places: the store's, and the driver, reached at `live`, which lists live writers."""
    return replace(store, plugin=NAME, endpoint=f"{store.endpoint}{_BETWEEN}{live}")


def split_handle(handle: ShuffleHandle) -> tuple[ShuffleHandle, str]:
    """The store's handle, and the driver's address.

    :raises InvalidArgument: it is no handle of this plugin.
    """
    store, between, live = handle.endpoint.partition(_BETWEEN)
    if handle.plugin != NAME or not between:
        raise InvalidArgument(
            f"a handle of plugin {handle.plugin!r} with endpoint {handle.endpoint!r}",
            remedy="register the shuffle with a master of the plugin hybrid",
            shuffle=handle.spec.id,
        )
    return replace(handle, plugin="remote", endpoint=store), live


class HybridMaster(ShuffleMaster):
    """One application: registers its shuffles with the store, and with the directory of its process.

    The store's master decides what exists and who won.

    :param store: of this application.
    :param live: where tasks of other processes reach the directory.
    """

    def __init__(self, store: RemoteMaster, registry: DriverRegistry, live: str) -> None:
        self._store, self._registry, self._live = store, registry, live
        registry.register_app(store.run)
        self._closed = False

    def register_shuffle(self, partitions: int, maps: int, *, shuffle: int | None = None) -> ShuffleHandle:
        handle = self._store.register_shuffle(partitions, maps, shuffle=shuffle)
        self._registry.register_shuffle(handle.spec, STREAM_CONFIG)
        return join_handle(handle, self._live)

    def map_outputs(self, handle: ShuffleHandle) -> list[MapOutput]:
        return self._store.map_outputs(split_handle(handle)[0])

    def unregister_shuffle(self, handle: ShuffleHandle) -> None:
        self._store.unregister_shuffle(split_handle(handle)[0])
        self._registry.unregister_shuffle(handle.spec.id)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        close_all([self._store.close, lambda: self._registry.unregister_app(self._store.run)])


User = TypeVar("User", HybridMaster, HybridWriter, HybridReader)


class HybridShuffle(ShufflePlugin):
    """All goes to the remote store, as with the plugin `remote`; readers that are there meanwhile get it from memory.

    Option `server` is required at the driver, whose process must live as long as its shuffles.
    """

    name = NAME
    mode = HYBRID

    def __init__(self, options: Options = NO_OPTIONS) -> None:
        self._options = chosen = parse_options(HybridOptions, options, os.environ)
        self._store = RemoteShuffle(chosen.store())
        self._live = Endpoint(chosen.live())
        self._flusher = HybridOutputFlusher(min(chosen.flush_timeout, chosen.wait / 4))
        self._lock = threading.Lock()
        self._users: weakref.WeakSet[HybridMaster | HybridWriter | HybridReader] = weakref.WeakSet()
        self._closed = False

    def master(self, app: str) -> HybridMaster:
        self._check_open()
        store = self._store.master(app)
        try:
            address = self._live.address(store.run)
            return self._track(HybridMaster(store, self._live.driver_registry, address))
        except BaseException:
            store.close()
            raise

    def writer(self, handle: ShuffleHandle, attempt: MapAttempt) -> HybridWriter:
        """See `ShufflePlugin.writer`. The attempt with the highest number is the one offered to live readers."""
        self._check_open()
        stored, driver = split_handle(handle)
        spec = handle.spec
        spec.check_map(attempt.map)
        result_partition = self._offer(spec, attempt, driver)
        try:
            store = self._store.writer(
                stored, attempt, on_block=result_partition.offer if result_partition is not None else None
            )
        except BaseException as error:
            if result_partition is not None:
                self._live.remove(result_partition, InvalidArgument(f"the writer could not be opened: {error}"))
            raise

        def leave(error: ShuffleError) -> None:
            if result_partition is not None:
                self._live.remove(result_partition, error)
                self._live.registry(driver, spec.id.app).fail(spec.id, attempt, error.message)

        writer = self._track(HybridWriter(spec, attempt, store, result_partition, leave, self._options.flush_timeout))
        if result_partition is not None:
            over = MapOutputLost("its writer has ended the offer", remedy="read it from the store", output=attempt)
            self._flusher.add(result_partition, writer, partial(self._live.remove, result_partition, over))
        return writer

    def reader(self, handle: ShuffleHandle, partitions: range, maps: range | None = None) -> HybridReader:
        """See `ShufflePlugin.reader`. Of several readers of a partition at once, one is live."""
        self._check_open()
        stored, driver = split_handle(handle)
        spec = handle.spec
        wanted = spec.check_ranges(partitions, maps)
        store = self._store.reader(stored, partitions, wanted)
        live = DriverLocations(self._live, driver, spec.id, partitions)
        return self._track(HybridReader(spec, partitions, wanted, store, live, self._options.timeout))

    def watch(self, handle: ShuffleHandle) -> LossWatch:
        """The map outputs of a shuffle that are lost, as they are lost, with worker and reason. Close it at the end."""
        self._check_open()
        return self._store.watch(split_handle(handle)[0])

    def memory(self) -> PoolStatistics:
        """What waits for live readers, and their windows, of the option `memory`."""
        return self._live.pool.statistics()

    def close(self) -> None:
        """Abort open writers, close readers and masters; wait `linger` for live readers of what was committed."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            users = list(self._users)
        users.sort(key=lambda user: isinstance(user, HybridMaster))  # masters last: the others still need them
        steps = [user.abort if isinstance(user, HybridWriter) else user.close for user in users]
        linger = partial(self._live.close, self._options.linger)
        close_all([*steps, linger, self._flusher.close, self._store.close])

    def _offer(self, spec: ShuffleSpec, attempt: MapAttempt, driver: str) -> HybridResultPartition | None:
        """Subpartitions of the attempt, which readers find; None if there is something against that.

        :raises UnknownShuffle: the shuffle is not registered.
        """
        chosen, pool = self._options, self._live.pool
        result_partition: HybridResultPartition | None = None
        try:
            registry = self._live.registry(driver, spec.id.app)
            result_partition = HybridResultPartition(
                spec, attempt, pool=pool, limit=chosen.lane_bytes, wait=chosen.wait
            )
            self._live.add(result_partition)
            registry.bind(spec.id, attempt, self._live.address(spec.id.app))
            return result_partition
        except BaseException as error:
            if result_partition is not None:
                self._live.remove(result_partition, InvalidArgument(f"the writer could not be opened: {error}"))
            if not isinstance(error, _AWAY):
                raise
            known = logging.DEBUG if isinstance(error, AttemptSuperseded) else logging.WARNING
            log.log(known, "%s of %s goes to the store alone: %s", attempt, spec.id, error)
            return None

    def _track(self, user: User) -> User:
        with self._lock:
            if not self._closed:
                self._users.add(user)
                return user
        user.abort() if isinstance(user, HybridWriter) else user.close()
        raise InvalidArgument("the plugin is closed", remedy="open a new one")

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgument("the plugin is closed", remedy="open a new one")
