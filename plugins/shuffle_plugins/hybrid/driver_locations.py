"""What a reader asks the driver: where the writers of its shuffle are; and the connections to them."""

from __future__ import annotations

import uuid

from shuffle_api.ids import ShuffleId
from shuffle_plugins.pipelined.endpoint import Endpoint
from shuffle_plugins.pipelined.producer_registry import ProducerLocation, ProducerRegistry, Watcher
from shuffle_plugins.pipelined.source import Source


class DriverLocations:
    """Asked of the directory at `address`, which is connected when it is needed: for what the store has, it is not.

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
