"""Clocks for decisions about whether a peer is still there.

Silence proves something only while the process that waits for a heartbeat is able to receive one. A process that is
stopped (SIGSTOP), or whose machine is suspended, receives nothing; a wall clock that is set forward lets time pass that
nobody has waited. A decision that drops data therefore counts silence on a `ServingClock`, or by a `Silence`. The
opposite decision, to rely on a peer because it was there a moment ago, counts every second: it uses `boot_seconds`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LOOK_SHARE = 0.25
"""Of the time after which a silent peer is taken for dead: so much silence counts between two looks at most. What came
while the process stood still is yet to be read."""

LOOKS_PER_TIMEOUT = 8
"""How often a decider looks in that time at least: more often than `LOOK_SHARE` asks for, so its clock is not slow."""

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_seconds() -> float:
    """Seconds since the machine started, those in which it was suspended included. Never set back."""
    return time.clock_gettime(_BOOT)


class ServingClock:
    """A monotonic clock that advances by at most `cap` seconds between two looks at it. Thread-safe.

    The process that decides looks at it at least every `cap` seconds, so it runs as fast as its source. A span in which
    the process stood still counts for `cap` seconds at most.

    :param cap: seconds; shorter than the silence that is waited for, by more than a heartbeat takes to arrive.
    :param source: what it measures. It may jump: back counts for nothing, forward for `cap`.
    """

    def __init__(self, cap: float, source: Callable[[], float] = time.monotonic) -> None:
        self._cap, self._source = cap, source
        self._lock = threading.Lock()
        self._now = self._looked = source()

    def __call__(self) -> float:
        with self._lock:
            at = self._source()
            self._now += min(max(0.0, at - self._looked), self._cap)
            self._looked = at
            return self._now


class Silence:
    """How long a sign has not changed, by looks at it: each counts the time since the last one, up to `cap` seconds.

    The sign is anything that changes when a peer does something: when it was received last, a file's modification time.
    Thread-safe.
    """

    def __init__(self, cap: float, source: Callable[[], float] = time.monotonic) -> None:
        self._cap, self._source = cap, source
        self._lock = threading.Lock()
        self._sign: object = None
        self._seconds, self._looked = 0.0, source()

    def look(self, sign: object) -> float:
        """Seconds for which the sign has been this one; 0 when it has changed since the last look."""
        with self._lock:
            now = self._source()
            if sign != self._sign:
                self._sign, self._seconds = sign, 0.0
            else:
                self._seconds += min(max(0.0, now - self._looked), self._cap)
            self._looked = now
            return self._seconds
