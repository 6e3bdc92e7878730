"""Deadlines for what cannot be given one: Flight's reads and writes wait for as long as the transport does.

One thread per client or endpoint. A thread that begins a write sets its deadline; when that passes the timer thread
aborts the stream, which ends the write. Between deadlines it asks watched channels whether their peers are alive, each
when it wants to be asked. Alarms are in a heap: to look at all channels whenever one of them wants something cost one
that was busy beside 500 idle ones a third of its throughput.

A deadline that passes while the process itself is stopped proves nothing about the peer. A timer thread that woke too
late postpones all timers by as much, and by up to a second more, in which what came meanwhile is read.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from shuffle_api.periodic import PeriodicTask

_LONG = 3600.0
_LOOK = 1.0  # seconds: a timer thread that has timers sleeps so long at most, to notice when the process stood still
_STOOD = 0.5  # seconds from which on a timer thread that woke too late stood still
_AGAIN = 1.0  # seconds to the next look after one that failed
_RETRY = 0.1  # seconds for which nothing is fired after a timer that failed
_FEW = 64  # timers in the heap that count no more, beside as many as do

Check = Callable[[float], float]
"""Called with the time; returns when to be called again. Must not wait for anything but short locks."""


@dataclass(frozen=True, slots=True)
class _Timer:
    """At `time`, call `fire`."""

    key: object
    time: float
    fire: Callable[[], None]


class TimerThread:
    """Runs checks and aborts what is overdue. Starts its thread with the first thing it is to watch.

    :param name: the thread's.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition(threading.Lock())
        self._checks: dict[object, Callable[[], None]] = {}
        self._numbers = itertools.count()
        self._timers_by_number: dict[int, _Timer] = {}
        self._set: dict[object, int] = {}  # which timer a key has
        # Times and numbers, and nothing else: the heap must not keep a timer that ended early in memory until its time.
        self._heap: list[tuple[float, int]] = []
        self._task: PeriodicTask | None = None
        self._closed = False
        self._begun: float | None = None  # when the thread was started, until it runs

    def watch(self, key: object, check: Check) -> None:
        """Call `check` now and then until `forget`."""

        def look() -> None:
            again = time.monotonic() + _AGAIN
            try:
                again = check(time.monotonic())
            finally:
                with self._changed:
                    if self._checks.get(key) is look and look not in self._set:  # else `hurry` has come meanwhile
                        self._set_timer(look, again, look)

        with self._changed:
            self._checks[key] = look
            self._set_timer(look, 0.0, look)

    def hurry(self) -> None:
        """Call all checks now: one of them has an earlier time to say."""
        with self._changed:
            for look in self._checks.values():
                self._set_timer(look, 0.0, look)

    def forget(self, key: object) -> None:
        with self._changed:
            look = self._checks.pop(key, None)
            if look is not None:
                self._silence(look)

    @contextmanager
    def guard(self, deadline: float, abort: Callable[[], None]) -> Iterator[None]:
        """Call `abort` if the block has not ended at `deadline` (time.monotonic)."""
        key = object()
        self.begin(key, deadline, abort)
        try:
            yield
        finally:
            self.end(key)

    def begin(self, key: object, deadline: float, abort: Callable[[], None]) -> None:
        """As entering `guard`; a key that has begun already begins anew."""
        with self._changed:
            self._set_timer(key, deadline, abort)

    def end(self, key: object) -> None:
        with self._changed:
            self._silence(key)

    def close(self) -> None:
        """End the thread. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._task is not None:
            self._task.close()

    # ------------------------------------------------------------------------------------ with the lock held

    def _set_timer(self, key: object, at: float, fire: Callable[[], None]) -> None:
        self._silence(key)
        number = next(self._numbers)
        self._timers_by_number[number], self._set[key] = _Timer(key, at, fire), number
        if len(self._heap) > 2 * len(self._timers_by_number) + _FEW:
            self._heap = [(timer.time, number) for number, timer in self._timers_by_number.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (at, number))
        if self._task is None and not self._closed:
            self._begun = time.monotonic()
            self._task = PeriodicTask(self._name, self._fire_next, _RETRY, at_once=True)
            self._task.start()
        elif self._heap[0][1] == number:
            self._changed.notify()

    def _silence(self, key: object) -> None:
        number = self._set.pop(key, None)
        if number is not None:
            del self._timers_by_number[number]

    def _wait(self) -> _Timer | None:
        """The next timer whose time has come; None: the timer thread is closed."""
        while not self._closed:
            pause = _LONG
            if self._heap:
                at, number = self._heap[0]
                pause = at - time.monotonic() if number in self._timers_by_number else 0.0
                if pause <= 0:
                    heapq.heappop(self._heap)
                    timer = self._timers_by_number.pop(number, None)
                    if timer is None:
                        continue
                    del self._set[timer.key]
                    return timer
            self._sleep(min(pause, _LOOK) if self._heap else pause)
        return None

    def _sleep(self, pause: float) -> None:
        until = time.monotonic() + pause
        self._changed.wait(pause)
        self._forgive(time.monotonic() - until)

    def _forgive(self, late: float) -> None:
        """The thread runs so much later than it should: the process stood still, and all timers ring later."""
        if late > _STOOD:
            later = late + min(late, _LOOK)
            self._timers_by_number = {
                n: replace(timer, time=timer.time + later) for n, timer in self._timers_by_number.items()
            }
            self._heap = [(timer.time, number) for number, timer in self._timers_by_number.items()]
            heapq.heapify(self._heap)

    # --------------------------------------------------------------------------------------------- the thread

    def _fire_next(self) -> float:
        with self._changed:
            if self._begun is not None:  # it may have stood still before its thread ran for the first time
                self._forgive(time.monotonic() - self._begun)
                self._begun = None
            timer = self._wait()
        if timer is not None:
            timer.fire()
        return 0.0


class Deadline:
    """Until when something may last: it is set with every message, and hardly ever passes.

    A timer for each would cost more than all else that a small message needs of the timer thread. So a deadline is a
    number, written without a lock, and the timer thread gets the first only: when that has passed it checks what the
    number is then. One thread at a time begins and ends it.

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
