"""Where the producers of a shuffle are, for one reader: watched anew when the connection to the driver broke."""

from __future__ import annotations

import threading
from collections.abc import Callable

from shuffle_api.ids import ShuffleId
from shuffle_plugins.pipelined.producer_registry import ProducerRegistry, Watcher


class RegistryWatch:
    """
    :param find: gives the driver's registry: the same one each time while its connection holds.
    """

    def __init__(self, shuffle: ShuffleId, find: Callable[[], ProducerRegistry]) -> None:
        self.shuffle, self._find = shuffle, find
        self._watcher: Watcher | None = None
        self._registry: ProducerRegistry | None = None
        self._renewing = threading.Lock()

    def begin(self, watcher: Watcher) -> None:
        """Call `watcher` with the present state and each change, from now on.

        :raises ShuffleError: the driver cannot be reached, or has no such shuffle.
        """
        self._watcher = watcher
        self.renew()

    def renew(self) -> None:
        """Go on when the connection is another one, or find one; where another thread does so already, return.

        :raises ShuffleError: as `begin`.
        """
        watcher = self._watcher
        if watcher is None or not self._renewing.acquire(blocking=False):
            return
        try:
            registry = self._find()
            if registry is not self._registry:
                registry.watch(self.shuffle, watcher)
                self._registry = registry
        finally:
            self._renewing.release()

    def end(self) -> None:
        """Call it no more."""
        watcher, self._watcher = self._watcher, None
        if self._registry is not None and watcher is not None:
            self._registry.unwatch(self.shuffle, watcher)
