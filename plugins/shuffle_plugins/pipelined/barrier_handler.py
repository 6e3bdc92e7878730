"""A reader's part in checkpoints: where each input stands at the cut, and what the barriers overtook.

The input gate's lock guards it. Inputs that stand at their barrier have a position in `_standing`; those whose barrier
is still to come, though the cut was made, are `_capturing`: what arrives from them belongs to the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from shuffle_api.streaming import Aligner, Barrier, Captured, InFlight, Position, ReaderState, Step
from shuffle_plugins.pipelined.entries import SequencedBlock
from shuffle_plugins.pipelined.input_channel import InputChannel
from shuffle_plugins.pipelined.producer_registry import StreamConfig

CheckpointEvent: TypeAlias = Barrier | Captured


class CheckpointBarrierHandler:
    """
    :param inputs: by map.
    :param passed: the checkpoint restored from.
    """

    def __init__(self, inputs: dict[int, InputChannel], config: StreamConfig, passed: int) -> None:
        self._inputs, self._config = inputs, config
        self._aligner = Aligner(inputs, config.guarantee, config.alignment, passed=passed)
        self._standing: dict[int, Position] = {}
        self._captured: list[InFlight] = []
        self._capturing: set[int] = set()

    @property
    def blocked(self) -> frozenset[object]:
        """Maps that wait for the others."""
        return self._aligner.blocked

    @property
    def checkpoint(self) -> int:
        """The one under way, or the last one."""
        return self._aligner.checkpoint

    def overtakes(self, barrier: Barrier) -> bool:
        """It is dealt with when it arrives, whatever is before it."""
        late = self._aligner.overtaking and barrier.checkpoint == self._aligner.checkpoint
        return barrier.unaligned or self._config.overtakes_at_once or late

    def reached(self, input: InputChannel, checkpoint: int) -> list[CheckpointEvent]:
        """A barrier is at the head of its input."""
        if self._aligner.stale(checkpoint):
            return []
        step = self._aligner.barrier(input.map, checkpoint)
        self._begin(step)
        self._standing[input.map] = input.position()
        return self._events(step.complete, [Barrier(checkpoint)])

    def arrived(self, input: InputChannel, checkpoint: int) -> list[CheckpointEvent]:
        """A barrier that overtakes is here; the input's queue holds it, behind what it overtook."""
        if self._aligner.stale(checkpoint):
            input.before(checkpoint)
            return []
        if self._aligner.overtaking and checkpoint == self._aligner.checkpoint:
            input.before(checkpoint)
            if input.map not in self._capturing:
                return []
            self._capturing.remove(input.map)
            return self._events(self._aligner.barrier(input.map, checkpoint).complete, [])
        return self.overtake(checkpoint)

    def overtake(self, checkpoint: int) -> list[CheckpointEvent]:
        """Cut now: whatever is in the queues and before a barrier is part of the checkpoint."""
        came: list[InputChannel] = []
        if checkpoint != self._aligner.checkpoint or not self._aligner.under_way:
            self._forget()
        for input in self._inputs.values():
            if input.map in self._standing:
                came.append(input)
                continue
            blocks, there = input.before(checkpoint)
            self._standing[input.map] = input.position()
            self._capture(input, blocks)
            if there:
                came.append(input)
            else:
                self._capturing.add(input.map)
        complete = False
        for input in came:
            complete = self._aligner.barrier(input.map, checkpoint, unaligned=True).complete
            if complete:
                break
        return self._events(complete, [], first=Barrier(checkpoint, unaligned=True))

    def block(self, input: InputChannel, block: SequencedBlock) -> None:
        """A block arrives."""
        if input.map in self._capturing:
            self._capture(input, [block])

    def end_arrived(self, input: InputChannel) -> list[CheckpointEvent]:
        """The end arrives: no barrier will come from there."""
        if input.map not in self._capturing:
            return []
        self._capturing.remove(input.map)
        return self._events(self._aligner.barrier(input.map, self._aligner.checkpoint).complete, [])

    def ended(self, input: InputChannel) -> list[CheckpointEvent]:
        """The end is at the head of its input."""
        step = self._aligner.ended(input.map)
        return self._events(step.complete, [Barrier(self._aligner.checkpoint)] if step.due else [])

    def waiting(self, queued: Iterable[int]) -> int | None:
        """The checkpoint that is being aligned, given those whose barriers are queued; None: there is none."""
        candidates = [checkpoint for checkpoint in queued if not self._aligner.stale(checkpoint)]
        if self._aligner.under_way:
            candidates.append(self._aligner.checkpoint)
        return max(candidates, default=None)

    @property
    def overtaking(self) -> bool:
        return self._aligner.overtaking

    def _begin(self, step: Step) -> None:
        if step.begun:
            self._forget()

    def _forget(self) -> None:
        self._standing.clear()
        self._captured.clear()
        self._capturing.clear()

    def _capture(self, input: InputChannel, blocks: Iterable[SequencedBlock]) -> None:
        position = self._standing[input.map]
        after = dict(position.blocks)
        for block in blocks:
            self._captured.append(block.in_flight(input.map))
            after[block.partition] = block.number + 1
        self._standing[input.map] = Position(after, position.markers)

    def _position(self, input: InputChannel) -> Position:
        """Where the input stood. One that was connected after the cut was made stood where it began."""
        standing = self._standing.get(input.map) or input.position()
        return Position({**input.origin, **standing.blocks}, standing.markers)

    def _events(
        self, complete: bool, before: list[CheckpointEvent], first: Barrier | None = None
    ) -> list[CheckpointEvent]:
        events: list[CheckpointEvent] = [first] if first is not None else []
        if complete:
            positions = {map: self._position(input) for map, input in self._inputs.items()}
            checkpoint = self._aligner.checkpoint
            events += [*before, Captured(checkpoint, ReaderState(checkpoint, positions, tuple(self._captured)))]
            self._forget()
        return events
