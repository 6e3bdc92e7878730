"""A deadline that is set with every message and hardly ever passes.

A timer for each would cost more than all else that a small message needs of the timer thread. So a deadline is a
number, written without a lock, and the timer thread gets the first only: when that has passed it checks what the
number is then.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from shuffle_transport.channels.timer_thread import TimerThread


class Deadline:
    """Until when something may last. One thread at a time begins and ends it.

    :param passed: the timer thread calls it, with the deadline that has passed.
    :ivar until: time.monotonic(); infinite while nothing lasts.
    """

    def __init__(self, timers: TimerThread, passed: Callable[[float], None]) -> None:
        self.until = math.inf
        self._timers, self._passed = timers, passed
        self._looks_at = math.inf  # when the timer thread looks
        self._telling = threading.Lock()

    def begin(self, until: float) -> None:
        """It may last until then."""
        # Written before the comparison: a timer thread that is looking just now, and will not come again, sees it.
        self.until = until
        if until < self._looks_at:
            self._tell()

    def end(self) -> None:
        """It has ended."""
        self.until = math.inf

    def close(self) -> None:
        """Remove its timer, until something begins again."""
        with self._telling:
            self._looks_at = math.inf
            self._timers.end(self)

    def _tell(self) -> None:
        with self._telling:
            until = self.until
            if until < self._looks_at:
                self._looks_at = until
                self._timers.begin(self, until, self._look)

    def _look(self) -> None:
        """Called by the timer thread. The write that set this timer has mostly ended long ago."""
        with self._telling:
            self._looks_at = math.inf
        until = self.until
        if until <= time.monotonic():
            self._passed(until)
        elif until < math.inf:
            self._tell()
