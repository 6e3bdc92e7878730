"""Clocks for decisions about who is still there.

Silence proves something only while the process that waits for a sign of life is able to receive one. A process that is
stopped (SIGSTOP), or whose machine is suspended, receives nothing; a wall clock that is set forward lets time pass that
nobody has waited. A decision that drops data therefore counts silence on a `ServingClock`. The opposite decision, to
rely on a peer because it was there a moment ago, counts every second: it uses `boot_seconds`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_seconds() -> float:
    """Seconds since the machine started, those in which it was suspended included. Never set back."""
    return time.clock_gettime(_BOOT)


class ServingClock:
    """A monotonic clock that advances by at most `cap` seconds between two looks at it. Thread-safe.

    The process that decides looks at it at least every `cap` seconds, so it runs as fast as its source. A span in which
    the process stood still counts for `cap` seconds at most.

    :param cap: seconds; shorter than the silence that is waited for, by more than a sign of life takes to arrive.
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
