"""Calls whose headers have come and whose message has not."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

PATIENCE_SECONDS = 0.25
CROWD = 8

Waiter = TypeVar("Waiter")


class HalfOpen(Generic[Waiter]):
    """Who waits, oldest first. Not thread-safe.

    Whoever comes is let in, and the one that has waited longest must go for it: an honest client sends a message with
    its headers, so its calls are the youngest, whoever else fills the list. A message may have come but for its last
    byte, so few wait for longer than PATIENCE_SECONDS.

    :param seconds: for which each may wait.
    :param each: most of one owner that wait for longer than PATIENCE_SECONDS; CROWD times as many in all.
    :param most: most of all owners.
    """

    def __init__(self, seconds: float, each: int, most: int) -> None:
        self.seconds, self.each, self.most = seconds, each, most
        self._all: OrderedDict[Waiter, tuple[str, float]] = OrderedDict()  # whose, and since when
        self._of: dict[str, OrderedDict[Waiter, None]] = {}
        self._crowded: set[str] = set()  # owners that have more than `each`

    def __len__(self) -> int:
        return len(self._all)

    def add(self, waiter: Waiter, owner: str, now: float) -> Waiter | None:
        """One more; the one that must go in its place, if there is one."""
        own = self._of.setdefault(owner, OrderedDict())
        out = None
        if len(own) >= CROWD * self.each:
            out = next(iter(own))
        elif len(self) >= self.most:
            out = next(iter(self._all))
        own[waiter] = None
        self._all[waiter] = owner, now
        if len(own) > self.each:
            self._crowded.add(owner)
        if out is not None:
            self.remove(out)
        return out

    def remove(self, waiter: Waiter) -> None:
        """It waits no more. A no-op for one that is not there."""
        owner, _ = self._all.pop(waiter, (None, 0.0))
        if owner is not None:
            own = self._of[owner]
            del own[waiter]
            if not own:
                del self._of[owner]

    def overdue(self, now: float) -> Iterator[Waiter]:
        """Those that have waited for too long, each removed."""
        while self._all:
            waiter, (_, since) = next(iter(self._all.items()))
            if since > now - self.seconds:
                return
            self.remove(waiter)
            yield waiter

    def crowding(self, now: float) -> Iterator[Waiter]:
        """Those that have waited for a while, of owners of whom too many have; each removed."""
        for owner in list(self._crowded):
            while len(own := self._of.get(owner, ())) > self.each:
                waiter = next(iter(own))
                if self._all[waiter][1] > now - PATIENCE_SECONDS:
                    break
                self.remove(waiter)
                yield waiter
            else:
                self._crowded.discard(owner)
