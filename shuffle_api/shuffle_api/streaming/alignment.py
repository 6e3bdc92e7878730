"""How barriers from several inputs become one checkpoint. Pure: its caller reads the inputs.

A checkpoint *begins* with its first barrier, is *due* when the operator is to snapshot its state, and is *complete*
when its barrier has come from every input; an input that has ended counts as having passed every barrier. A barrier of
a newer checkpoint gives up the one under way: its coordinator has.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from shuffle_api.streaming.guarantees import Alignment, Guarantee


@dataclass(frozen=True, slots=True)
class Step:
    """What a barrier brought about. `due` and `complete` name the checkpoint now under way."""

    begun: bool = False
    due: bool = False
    complete: bool = False
    given_up: int | None = None


NOTHING = Step()


class Aligner:
    """The barriers of one reader.

    * Without `exactly_once` nothing waits: due when complete.
    * Aligned: inputs in `blocked` are not to be read; due when complete.
    * Unaligned, and after `overtake`: due when it begins, complete when the last has come; nothing is blocked.

    :param passed: the checkpoint restored from; its barrier, and those before, mean nothing any more.
    :ivar checkpoint: the one under way, or the last one.
    """

    def __init__(
        self, inputs: Iterable[Hashable], guarantee: Guarantee, alignment: Alignment, *, passed: int = -1
    ) -> None:
        self._open = set(inputs)
        self._exactly = guarantee is Guarantee.EXACTLY_ONCE
        self._alignment = alignment
        self._came: set[Hashable] = set()
        self._overtaking = False
        self.checkpoint = passed
        self.under_way = False

    @property
    def blocked(self) -> frozenset[Hashable]:
        """Inputs that wait for the others."""
        if not self.under_way or not self._exactly or self._overtaking:
            return frozenset()
        return frozenset(self._came)

    @property
    def overtaking(self) -> bool:
        """The checkpoint under way does not wait for the data before its barriers."""
        return self.under_way and self._overtaking

    def stale(self, checkpoint: int) -> bool:
        """This checkpoint is over, or was given up."""
        return checkpoint < self.checkpoint or (checkpoint == self.checkpoint and not self.under_way)

    def barrier(self, source: Hashable, checkpoint: int, *, unaligned: bool = False) -> Step:
        """A barrier is reached: at the head of what `source` has to say, or when it arrives if it overtakes."""
        if self.stale(checkpoint):
            return NOTHING
        begun, given_up = checkpoint > self.checkpoint, None
        if begun:
            given_up = self.checkpoint if self.under_way else None
            self.checkpoint, self.under_way = checkpoint, True
            self._came.clear()
            self._overtaking = False
        self._came.add(source)
        was_overtaking = self._overtaking
        if self._exactly and (unaligned or self._alignment is Alignment.UNALIGNED):
            self._overtaking = True
        step = self._after()
        due = step.due or (self._overtaking and not was_overtaking)
        return Step(begun, due, step.complete, given_up)

    def overtake(self) -> Step:
        """Alignment takes too long: from now on the checkpoint under way waits for nothing."""
        if not self.under_way or self._overtaking or not self._exactly:
            return NOTHING
        self._overtaking = True
        return Step(due=True)

    def ended(self, source: Hashable) -> Step:
        """Nothing more comes from `source`."""
        self._open.discard(source)
        return self._after() if self.under_way else NOTHING

    def _after(self) -> Step:
        if self._open - self._came:
            return NOTHING
        self.under_way = False
        return Step(due=not self._overtaking, complete=True)
