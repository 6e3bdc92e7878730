"""The `hybrid` plugin: read while it is written, and again from the remote store."""

from __future__ import annotations

import logging
import os
import threading
import weakref
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
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import NO_OPTIONS, Options, ShufflePlugin
from shuffle_api.options import parse_options
from shuffle_api.values import HYBRID, ShuffleHandle, ShuffleSpec
from shuffle_plugins.hybrid.driver_locations import DriverLocations
from shuffle_plugins.hybrid.handle import NAME, split_handle
from shuffle_plugins.hybrid.master import HybridMaster
from shuffle_plugins.hybrid.options import HybridOptions
from shuffle_plugins.hybrid.output_flusher import HybridOutputFlusher
from shuffle_plugins.hybrid.reader import HybridReader
from shuffle_plugins.hybrid.result_partition import HybridResultPartition
from shuffle_plugins.hybrid.writer import HybridWriter
from shuffle_plugins.pipelined.closing import close_all
from shuffle_plugins.pipelined.endpoint import Endpoint
from shuffle_plugins.remote.plugin import RemoteShuffle
from shuffle_plugins.remote.watch import LossWatch
from shuffle_transport.pool import PoolStatistics

log = logging.getLogger(__name__)

_AWAY = (ServerUnreachable, DeadlineExceeded, StreamBroken, ShuttingDown, Overloaded, AttemptSuperseded)
"""Why an attempt may not be offered to live readers, though it can be written."""

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
