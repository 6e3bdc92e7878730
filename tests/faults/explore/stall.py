"""For how long a process did not get to run, and what a deadline means on a crowded machine."""

from __future__ import annotations

import os
import threading
import time
from collections import deque

TICK_S = 0.05
SPAN_S = 4.0
"""A silence is as good as over after so long: what was lost before counts no more."""


class Stall:
    """For how long of any `SPAN_S` this process did not get to run, at most: then a timeout of its own says nothing.

    Close it: a thread looks until then.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, name="stall", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _look(self) -> None:
        late: deque[tuple[float, float]] = deque()
        last = time.monotonic()
        while not self._closed.wait(TICK_S):
            now = time.monotonic()
            late.append((now, now - last - TICK_S))
            last = now
            while late[0][0] < now - SPAN_S:
                late.popleft()
            self.longest = max(self.longest, sum(seconds for _, seconds in late))


THREADS = 4.0
"""For each processor: with more that want to run, a deadline is longer in proportion."""


def crowd() -> float:
    """By how much more the machine has to do than it can."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1) / THREADS)


class Patience:
    """A deadline of `seconds`, which pass more slowly while the machine has more to do than it can. For one thread."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._spent, self._looked = 0.0, time.monotonic()

    def is_over(self) -> bool:
        """To be asked often: what has passed since the last time counts by how crowded the machine is now."""
        now = time.monotonic()
        self._spent += (now - self._looked) / crowd()
        self._looked = now
        return self._spent > self._seconds
