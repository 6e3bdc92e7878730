"""How much may be on its way to a task so that it is processed within a target time. Pure arithmetic.

What is on its way delays every barrier behind it. A task that processes T bytes per second of its own time works off a
window of T x target in the target time; more than that only adds delay, less could starve it. As Flink's
`BufferDebloater`: throughput is smoothed, time in which the task had nothing to do does not count, and a window that
would change by less than a quarter stays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

_WEIGHT = 0.4
"""Of the newest measurement."""

_SHORTEST = 1e-3
"""Seconds of work below which a measurement would be noise."""

_CHANGE = 0.25
"""Smallest change of the window worth telling anybody."""


@dataclass(frozen=True, slots=True)
class BufferDebloater:
    """One reader's window.

    :ivar target: seconds in which a window is to be processed.
    :ivar least, most: bounds of the window, bytes.
    :ivar window: bytes that may be on their way.
    :ivar throughput: bytes per second that the task processes while it has something to do; 0: not known yet.
    """

    target: float
    least: int
    most: int
    window: int
    throughput: float = 0.0

    def measured(self, size: int, busy: float) -> BufferDebloater:
        """After `busy` seconds of work on `size` bytes. Without work nothing is known and nothing changes."""
        if size <= 0 or busy <= 0:
            return self
        now = size / max(busy, _SHORTEST)
        throughput = now if not self.throughput else _WEIGHT * now + (1 - _WEIGHT) * self.throughput
        wanted = max(self.least, min(self.most, int(throughput * self.target)))
        moved = abs(wanted - self.window) >= _CHANGE * self.window or wanted in (self.least, self.most)
        return replace(self, throughput=throughput, window=wanted if moved else self.window)
