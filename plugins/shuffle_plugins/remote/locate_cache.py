"""The master's last answers about map outputs, for the next readers of a process."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from shuffle_api.ids import ShuffleId
from shuffle_api.values import MapOutput

MOST_KEPT = 100_000  # outputs, some 400 bytes each


@dataclass(frozen=True, slots=True)
class Located:
    """The winners of a range of maps, ascending by map, and those that were committed and lost since.

    :ivar epoch: of the master that has answered.
    :ivar version: of the shuffle's outputs then; 0: they changed between two pages, or the master gives no versions.
    """

    outputs: tuple[MapOutput, ...]
    lost: tuple[MapOutput, ...]
    epoch: int = 0
    version: int = 0

    def __len__(self) -> int:
        return len(self.outputs) + len(self.lost)


class LocateCache:
    """The last answer for each shuffle and range of maps: the master sends no list where it holds still. Thread-safe.

    :param most: outputs in all answers that are kept, and answers.
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most, self._lock = most, threading.Lock()
        self._size = 0  # outputs, and one for each answer: without outputs it takes memory too
        self._kept: dict[tuple[ShuffleId, range], Located] = {}

    def find(self, shuffle: ShuffleId, maps: range) -> Located | None:
        """The last answer."""
        with self._lock:
            return self._kept.get((shuffle, maps))

    def keep(self, shuffle: ShuffleId, maps: range, located: Located) -> None:
        """In the place of an earlier answer; when there are too many, those that came first go."""
        with self._lock:
            self._drop((shuffle, maps))
            self._kept[shuffle, maps] = located
            self._size += 1 + len(located)
            while self._size > self._most:
                self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[ShuffleId, range]) -> None:
        located = self._kept.pop(key, None)
        if located is not None:
            self._size -= 1 + len(located)
