"""A clock that goes on when a test says so."""

from __future__ import annotations


class SteppedClock:
    """Seconds; a test adds to `now`."""

    now = 100.0

    def __call__(self) -> float:
        return self.now
