"""What the registry has removed while its files are still being deleted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

from shuffle_api.ids import ShuffleId
from shuffle_api.registry.events import AppRemoved, Event, ShuffleRemoved

Key = ShuffleId | str  # a shuffle, or an application and all that is its


class Removals:
    """Shuffles and applications whose removal has been applied, and listeners have not finished with. Thread-safe.

    Their names are free at once, and what is written under one again lies where the old files do. So whoever registers
    it waits: a late deletion would take the new files too.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._under_way: Counter[Key] = Counter()

    def begin(self, events: Iterable[Event]) -> list[Key]:
        """These were applied; what to `end`. To be called under the lock under which they were."""
        keys: list[Key] = []
        for event in events:
            if isinstance(event, ShuffleRemoved):
                keys.append(event.id)
            elif isinstance(event, AppRemoved):
                keys.append(event.app)
        if keys:
            with self._changed:
                self._under_way.update(keys)
        return keys

    def end(self, keys: list[Key]) -> None:
        """All listeners have heard of them, or never will."""
        if keys:
            with self._changed:
                self._under_way -= Counter(keys)
                self._changed.notify_all()

    def wait(self, shuffle: ShuffleId) -> None:
        """Return when no removal can touch what is written for `shuffle` from now on."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._under_way[shuffle] or self._under_way[shuffle.app]))
