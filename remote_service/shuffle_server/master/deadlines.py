"""When each of many members is to be looked at again: the due ones are found without a look at the others."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush


class Deadlines:
    """Ids by the time when they are due. Each has one time, so adding and finding are O(log members). Not thread-safe.

    A time is not changed while it waits: one that is due too early is added again.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._waiting: set[str] = set()

    def add(self, id: str, due: float) -> None:
        """Have an id found when it is due, unless it waits already."""
        if id not in self._waiting:
            self._waiting.add(id)
            heappush(self._heap, (due, id))

    def due(self, now: float) -> Iterator[str]:
        """The ids that are due, which do not wait any more."""
        while self._heap and self._heap[0][0] <= now:
            _, id = heappop(self._heap)
            self._waiting.discard(id)
            yield id
