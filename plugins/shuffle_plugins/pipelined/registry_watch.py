"""Where the producers of a shuffle are, for one reader: watched anew when the connection to the driver broke."""

from __future__ import annotations

import threading
from collections.abc import Callable

from shuffle_api.errors import ShuffleError
from shuffle_api.ids import ShuffleId
from shuffle_plugins.pipelined.producer_registry import ProducerRegistry, Watcher
from shuffle_plugins.pipelined.source import MAY_PASS


class RegistryWatch:
    """
    :param find: gives the driver's registry: the same one each time while its connection holds.
    """

    def __init__(self, shuffle: ShuffleId, find: Callable[[], ProducerRegistry]) -> None:
        self.shuffle, self._find = shuffle, find
        self._watcher: Watcher | None = None
        self._registry: ProducerRegistry | None = None
        self._renewing = threading.Lock()
        self._away: ShuffleError | None = None

    def begin(self, watcher: Watcher) -> None:
        """Call `watcher` with the present state and each change, from now on.

        :raises ShuffleError: the driver cannot be reached, or has no such shuffle.
        """
        self._watcher = watcher
        self._watch(watcher)

    def renew(self) -> ShuffleError | None:
        """Go on when the connection is another one, or find one, unless another thread does so already. Returns why the
        driver cannot be reached; None: it can.

        :raises ShuffleError: it refuses, or has no such shuffle.
        """
        if self._watcher is not None and self._renewing.acquire(blocking=False):
            try:
                self._watch(self._watcher)
                self._away = None
            except MAY_PASS as error:
                self._away = error
            finally:
                self._renewing.release()
        return self._away

    def end(self) -> None:
        """Call it no more."""
        watcher, self._watcher = self._watcher, None
        if self._registry is not None and watcher is not None:
            self._registry.unwatch(self.shuffle, watcher)

    def _watch(self, watcher: Watcher) -> None:
        registry = self._find()
        if registry is not self._registry:
            registry.watch(self.shuffle, watcher)
            self._registry = registry
