"""For how long a process did not get to run."""

from __future__ import annotations

import threading
import time
from collections import deque

TICK_S = 0.05
SPAN_S = 4.0
"""A silence is as good as over after so long: what was lost before counts no more."""


class Stall:
    """For how long of any `SPAN_S` this process did not get to run, at most: then a timeout of its own says nothing."""

    def __init__(self) -> None:
        self.longest = 0.0
        threading.Thread(target=self._look, name="stall", daemon=True).start()

    def _look(self) -> None:
        late: deque[tuple[float, float]] = deque()
        last = time.monotonic()
        while True:
            time.sleep(TICK_S)
            now = time.monotonic()
            late.append((now, now - last - TICK_S))
            last = now
            while late[0][0] < now - SPAN_S:
                late.popleft()
            self.longest = max(self.longest, sum(seconds for _, seconds in late))
