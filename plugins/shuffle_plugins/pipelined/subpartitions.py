"""All subpartitions of one writer: which reader has which, and the checkpoints whose barriers are in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from shuffle_api.errors import AttemptSuperseded
from shuffle_api.ids import MapAttempt
from shuffle_api.streaming import Barrier, Position, WriterState
from shuffle_api.values import ShuffleSpec
from shuffle_plugins.pipelined.entries import SequencedBlock, SequencedMarker
from shuffle_plugins.pipelined.log_files import RecoveredLog
from shuffle_plugins.pipelined.subpartition import Subpartition, split
from shuffle_plugins.pipelined.subpartition_view import SubpartitionView


class Subpartitions:
    """The writer's lock guards them.

    Until a reader says which partitions it reads, each has a subpartition of its own.

    :param keep: sent entries stay until they are acknowledged.
    :param begin: where a reader begins that does not say.
    :param log: the entries that come first.
    :ivar of: by partition; `all`: each of them once.
    :ivar views: of those that have a reader.
    """

    def __init__(
        self, spec: ShuffleSpec, attempt: MapAttempt, *, keep: bool, begin: Position, log: RecoveredLog
    ) -> None:
        self._spec, self._attempt, self._keep = spec, attempt, keep
        self.of = [
            Subpartition([p], log.start, keep=keep, markers=log.markers, begin=begin, damage=log.damage)
            for p in range(spec.partitions)
        ]
        for entry in log.entries:
            for subpartition in self.of if isinstance(entry, SequencedMarker) else (self.of[entry.partition],):
                subpartition.restore(entry)
        self.all = list(self.of)
        self.views: dict[Subpartition, SubpartitionView] = {}
        self._read: set[int] = set()  # partitions, to their end

    @property
    def consumed(self) -> bool:
        """Every partition was read to its end."""
        return len(self._read) == self._spec.partitions

    @property
    def readers(self) -> str:
        """Who reads, for errors."""
        names = sorted({view.reader for view in self.views.values()})
        return f"reader {', '.join(names)}" if names else "a reader, of which there is none"

    def claim(self, reader: str, epoch: int, partitions: range) -> Subpartition:
        """The subpartition of just these partitions, which has no reader any more.

        :raises AttemptSuperseded: a reader of a higher epoch is there, or was; or another one of this epoch is.
        """
        touched = [each for each in self.all if any(p in partitions for p in each.start)]
        for subpartition in touched:
            self._check_free(subpartition, reader, epoch)
        for subpartition in touched:
            if (present := self.views.pop(subpartition, None)) is not None:
                present.supersede(reader)
        if len(touched) == 1 and list(touched[0].start) == list(partitions):
            return touched[0]
        subpartition = split(touched, partitions, keep=self._keep)
        rest = sorted(p for old in touched for p in old.start if p not in partitions)
        others = [split(touched, [p], keep=self._keep) for p in rest]
        self.all = [old for old in self.all if old not in touched] + [subpartition, *others]
        for new in (subpartition, *others):
            for partition in new.start:
                self.of[partition] = new
        return subpartition

    def left(self, view: SubpartitionView, *, finished: bool) -> bool:
        """A reader has left, with `finished` at the end; whether it was there until now."""
        there = self.views.get(view.subpartition) is view
        if there:
            del self.views[view.subpartition]
        if finished:
            self._read.update(view.subpartition.start)
        return there

    def waits(self, mark: SequencedMarker) -> bool:
        """The marker is not out for certain, and does not overtake by itself."""
        overtakes = isinstance(mark.marker, Barrier) and mark.marker.unaligned
        return not overtakes and any(subpartition.waits(mark) for subpartition in self.all)

    def clear(self) -> None:
        """Nobody will read any of it."""
        for subpartition in self.all:
            subpartition.clear()
        self.all = []

    def _check_free(self, subpartition: Subpartition, reader: str, epoch: int) -> None:
        present, held = self.views.get(subpartition), subpartition.epoch
        if held > epoch or (present is not None and held == epoch and present.reader != reader):
            raise AttemptSuperseded(
                f"reader {present.reader if present else 'that has left'} of attempt {held} has this partition",
                remedy="a partition has one reader; open the next with a higher attempt",
                shuffle=self._spec.id,
                output=self._attempt,
            )


StateParts: TypeAlias = tuple[WriterState, list[SequencedBlock]]
"""A writer at a barrier, and the blocks that the barrier has overtaken, some of which may be in files."""


@dataclass(slots=True)
class Capture:
    """The writer at a barrier, the barrier, and the blocks that it has overtaken."""

    state: WriterState
    mark: SequencedMarker
    blocks: list[SequencedBlock]


class Captures:
    """The checkpoints whose barriers may still wait, or are the last that went out. The writer's lock guards them.

    :param late: barriers overtake when their time is up, so that a state is known once it is, or all are out.
    """

    def __init__(self, subpartitions: Subpartitions, *, late: bool) -> None:
        self._subpartitions, self._late = subpartitions, late
        self._found: dict[int, Capture] = {}
        self._settled: set[int] = set()  # checkpoints whose state somebody has, perhaps: it stays as it is

    def __contains__(self, checkpoint: int) -> bool:
        return checkpoint in self._found

    def begin(self, state: WriterState, mark: SequencedMarker) -> None:
        """A barrier is emitted."""
        self._found = {n: each for n, each in self._found.items() if self._subpartitions.waits(each.mark)}
        self._settled &= self._found.keys() - {state.checkpoint}
        self._found[state.checkpoint] = Capture(state, mark, [])

    def overtake(self, checkpoint: int, subpartitions: Iterable[Subpartition]) -> list[Callable[[], None]]:
        """The barrier goes before all that waits in these; returns what the caller is to call unlocked."""
        capture = self._found[checkpoint]
        now = capture.mark.overtaking()
        calls: list[Callable[[], None]] = []
        for subpartition in subpartitions:
            view = self._subpartitions.views.get(subpartition)
            urgent = view.urgent if view is not None else None
            capture.blocks += subpartition.overtake(now)
            subpartition.markers_in_hand = [m for m in subpartition.markers_in_hand if m.number != capture.mark.number]
            if urgent is not None:
                calls.append(lambda urgent=urgent: urgent(now))  # type: ignore[misc]
        capture.mark = now
        return calls

    def overtake_late(self) -> list[Callable[[], None]]:
        """The time of those that still wait is up; returns as `overtake`."""
        calls: list[Callable[[], None]] = []
        for checkpoint, capture in self._found.items():
            mark = capture.mark
            if checkpoint not in self._settled and self._subpartitions.waits(mark):
                calls += self.overtake(checkpoint, [each for each in self._subpartitions.all if each.waits(mark)])
            self._settled.add(checkpoint)
        return calls

    def order(self, checkpoint: int) -> int:
        """Of its barrier, among all entries."""
        return self._found[checkpoint].mark.order

    def settle(self, checkpoint: int) -> StateParts | None:
        """The writer at the barrier, which overtakes nothing from now on; None while it may."""
        capture = self._found[checkpoint]
        if self._late and checkpoint not in self._settled and self._subpartitions.waits(capture.mark):
            return None
        # A reader that connects again may queue the barrier again: it overtakes nothing any more.
        self._settled.add(checkpoint)
        return capture.state, list(capture.blocks)

    def clear(self) -> None:
        self._found.clear()
