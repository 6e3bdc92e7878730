"""Which workers have changed since a client was sent the list."""

from __future__ import annotations

from collections import OrderedDict

REMEMBERED = 10_000  # changes; a client that lacks more of them gets the whole list


class WorkerVersions:
    """Numbers the changes of a list, and has for each id the last one. Not thread-safe."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._changed: OrderedDict[str, int] = OrderedDict()  # ascending by number
        self._floor = 0  # the last number that was forgotten
        self.version = 1

    def note(self, id: str) -> None:
        """A worker is there, is gone, or is another than before."""
        self.version += 1
        self._changed[id] = self.version
        self._changed.move_to_end(id)
        if len(self._changed) > self._remembered:
            _, self._floor = self._changed.popitem(last=False)

    def since(self, version: int) -> list[str] | None:
        """The ids of what has changed after this version, the last one first; None when that is not known any more."""
        if not max(1, self._floor) <= version <= self.version:
            return None
        found = []
        for id, number in reversed(self._changed.items()):
            if number <= version:
                break
            found.append(id)
        return found
