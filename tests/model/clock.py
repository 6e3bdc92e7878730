"""Simulated time: what happens when, one thing after the other."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class Clock:
    """Calls what is due, in the order of time. A call gives the present time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def __call__(self) -> float:
        return self.now

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Have something called in so many seconds."""
        heapq.heappush(self._queue, (self.now + max(0.0, seconds), next(self._numbers), call))

    def every(self, seconds: float, call: Callable[[], object]) -> None:
        """Have something called again and again, the first time in so many seconds."""

        def run() -> None:
            call()
            self.after(seconds, run)

        self.after(seconds, run)

    def run(self, until: float, over: Callable[[], bool]) -> None:
        """Until this time, or until it is `over`, which is asked after each call."""
        while self._queue and self._queue[0][0] <= until:
            self.now, _, call = heapq.heappop(self._queue)
            self.events += 1
            call()
            if over():
                return
        self.now = max(self.now, until)


class StoreTime:
    """What the store's code has in the place of the module `time`: a sleep takes no time, and is added up."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._slept = clock, 0.0

    def monotonic(self) -> float:
        return self._clock() + self._slept

    def sleep(self, seconds: float) -> None:
        self._slept += seconds

    def take(self) -> float:
        """The seconds slept since the last call."""
        slept, self._slept = self._slept, 0.0
        return slept
