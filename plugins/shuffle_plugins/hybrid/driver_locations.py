"""What a reader asks the driver: where the writers of its shuffle are."""

from __future__ import annotations

from shuffle_api.ids import ShuffleId
from shuffle_plugins.pipelined.endpoint import Endpoint
from shuffle_plugins.pipelined.producer_registry import ProducerRegistry, Watcher


class DriverLocations:
    """Asked of the directory at `address`, which is connected when it is needed: for what the store has, it is not."""

    def __init__(self, endpoint: Endpoint, address: str, shuffle: ShuffleId) -> None:
        self._endpoint, self._address, self._shuffle = endpoint, address, shuffle
        self._registry: ProducerRegistry | None = None

    def watch(self, watcher: Watcher) -> None:
        """Be told how things are, and every change.

        :raises ShuffleError: the driver is not to be had.
        """
        self._registry = self._endpoint.registry(self._address, self._shuffle.app)
        self._registry.watch(self._shuffle, watcher)

    def unwatch(self, watcher: Watcher) -> None:
        """Be told no more."""
        if self._registry is not None:
            self._registry.unwatch(self._shuffle, watcher)
