"""For how long a process did not get to run."""

from __future__ import annotations

import threading
import time

TICK_S = 0.05


class Stall:
    """For how long this process did not get to run, at most: then a timeout of its own says nothing."""

    def __init__(self) -> None:
        self.longest = 0.0
        threading.Thread(target=self._look, name="stall", daemon=True).start()

    def _look(self) -> None:
        last = time.monotonic()
        while True:
            time.sleep(TICK_S)
            now = time.monotonic()
            self.longest, last = max(self.longest, now - last - TICK_S), now
