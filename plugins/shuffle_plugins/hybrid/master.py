"""The driver's side: registers shuffles with the store, and with the directory of live writers in its own process."""

from __future__ import annotations

from shuffle_api.interfaces import ShuffleMaster
from shuffle_api.streaming import Guarantee
from shuffle_api.values import MapOutput, ShuffleHandle
from shuffle_plugins.hybrid.handle import join_handle, split_handle
from shuffle_plugins.pipelined.closing import close_all
from shuffle_plugins.pipelined.driver_registry import DriverRegistry
from shuffle_plugins.pipelined.stream_config import StreamConfig
from shuffle_plugins.remote.master import RemoteMaster

STREAM_CONFIG = StreamConfig(Guarantee.AT_MOST_ONCE)
"""Of the directory's shuffles: writers keep nothing for readers. The guarantees for readers come from the store."""


class HybridMaster(ShuffleMaster):
    """One application. The store's master decides what exists and who won.

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
