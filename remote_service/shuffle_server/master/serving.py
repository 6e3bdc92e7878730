"""How long the control endpoint has served: the time in which silence counts."""

from __future__ import annotations

import threading
from collections.abc import Callable

from shuffle_api.clock import boot_seconds

MOST_SECONDS = 1.0
"""Between two notes, which follow one another twenty times a second."""


class ServedTime:
    """A clock that runs while heartbeats are received. Thread-safe.

    The endpoint puts a `note` in line with the heartbeats, again and again. What lies between two of them counts
    once the second has had its turn, up to MOST_SECONDS: after more the process, or its machine, stood still. It does
    not count when a heartbeat was refused meanwhile (`miss`), and while the endpoint stands still there is no `note`.
    Without an endpoint, until the first `note`, every second counts.
    """

    def __init__(self, source: Callable[[], float] = boot_seconds) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._now: float | None = None
        self._noted = 0.0
        self._missed = self._ended = False

    def __call__(self) -> float:
        with self._lock:
            return self._source() if self._now is None else self._now

    def note(self) -> None:
        """Heartbeats that came until now have been received."""
        with self._lock:
            now = self._source()
            if self._now is None:
                self._now = now
            elif not self._missed and not self._ended:
                self._now += min(max(0.0, now - self._noted), MOST_SECONDS)
            self._noted, self._missed = now, False

    def miss(self) -> None:
        """A heartbeat was refused, or waits in the network: somebody else has filled the line."""
        with self._lock:
            self._missed = True

    def end(self) -> None:
        """The endpoint stops: no heartbeat is received from now on, so no second counts."""
        with self._lock:
            self._now = self._source() if self._now is None else self._now
            self._ended = True
