"""What a reader asks the driver: where the writers of its shuffle are."""

from __future__ import annotations

from shuffle_api.ids import ShuffleId
from shuffle_plugins.pipelined.directory import Directory, Watcher
from shuffle_plugins.pipelined.endpoint import Endpoint


class DriverPlaces:
    """Asked of the directory at `address`, which is connected when it is needed: for what the store has, it is not."""

    def __init__(self, endpoint: Endpoint, address: str, shuffle: ShuffleId) -> None:
        self._endpoint, self._address, self._shuffle = endpoint, address, shuffle
        self._directory: Directory | None = None

    def watch(self, watcher: Watcher) -> None:
        """Be told how things are, and every change.

        :raises ShuffleError: the driver is not to be had.
        """
        self._directory = self._endpoint.directory(self._address, self._shuffle.app)
        self._directory.watch(self._shuffle, watcher)

    def unwatch(self, watcher: Watcher) -> None:
        """Be told no more."""
        if self._directory is not None:
            self._directory.unwatch(self._shuffle, watcher)
