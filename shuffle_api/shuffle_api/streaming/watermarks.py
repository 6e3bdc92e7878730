"""The watermark of an operator with several inputs: the least of those that its inputs have reached."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

_NONE = -(2**63)
_END = 2**63 - 1


class Watermarks:
    """Inputs and their watermarks. Never falls; idle inputs and those that have ended hold nothing back.

    When no input is left that is neither idle nor ended, the watermark is the highest that any of them has reached,
    whichever fell idle first; when all have ended it is the largest there is (2**63 - 1).

    :ivar current: what was reached; None before every input that counts has said something.
    """

    def __init__(self, inputs: Iterable[Hashable]) -> None:
        self._times = dict.fromkeys(inputs, _NONE)
        self._idle: set[Hashable] = set()
        self._over: set[Hashable] = set()
        self.current: int | None = None

    def advance(self, source: Hashable, time: int) -> int | None:
        """A watermark came from `source`, which is not idle then. The operator's new watermark, if it rose."""
        self._idle.discard(source)
        self._times[source] = max(self._times[source], time)
        return self._risen()

    def of(self, source: Hashable) -> int | None:
        """The watermark of one input; None: there was none."""
        time = self._times[source]
        return None if time == _NONE else time

    def idle(self, source: Hashable) -> int | None:
        """`source` has nothing to say for now. The operator's new watermark, if it rose."""
        self._idle.add(source)
        return self._risen()

    def active(self, source: Hashable) -> None:
        """Something came from `source`: it counts again. (What the operator reached stays reached.)"""
        self._idle.discard(source)

    def ended(self, source: Hashable) -> int | None:
        """Nothing more comes from `source`. The operator's new watermark, if it rose."""
        self._over.add(source)
        return self._risen()

    def _risen(self) -> int | None:
        counting = [time for source, time in self._times.items() if source not in self._idle | self._over]
        if counting:
            time = min(counting)
        elif len(self._over) == len(self._times):
            time = _END
        else:
            time = max(self._times.values())
        if time == _NONE or (self.current is not None and time <= self.current):
            return None
        self.current = time
        return time
