"""What a reader has received and not handed out: inputs in turn, barriers aligned or overtaking, watermarks joined.

Threads that receive `put`; the task `take`s.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from shuffle_api.errors import DeadlineExceeded, ShuffleError, StreamBroken
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.streaming import (
    Barrier,
    Captured,
    EndOfPartition,
    Idle,
    Position,
    ReaderState,
    Watermark,
    Watermarks,
)
from shuffle_plugins.pipelined.barrier_handler import CheckpointBarrierHandler
from shuffle_plugins.pipelined.entries import SequencedMarker
from shuffle_plugins.pipelined.input_channel import InputChannel, QueuedBlock, QueuedMarker
from shuffle_plugins.pipelined.producer_registry import StreamConfig
from shuffle_plugins.pipelined.progress import InputStatistics
from shuffle_plugins.pipelined.source import Received, Source

GateEvent: TypeAlias = Barrier | Captured | Watermark | EndOfPartition


class InputGate:
    """The inputs of one reader, by map.

    :param restore: the checkpoint to go on from.
    :ivar starved: seconds that the task waited.
    """

    def __init__(self, shuffle: ShuffleId, maps: range, config: StreamConfig, restore: ReaderState | None) -> None:
        self.changed = threading.Condition()
        self.inputs = {map: InputChannel(map, restore) for map in maps}
        self.starved, self.restored = 0.0, restore
        self._shuffle, self._config = shuffle, config
        self._barriers = CheckpointBarrierHandler(
            self.inputs, config, restore.checkpoint if restore is not None else -1
        )
        self._watermarks = Watermarks(maps)
        self._events: deque[GateEvent] = deque()
        self._ready: deque[InputChannel] = deque(each for each in self.inputs.values() if each.items)
        self._overtake_at: float | None = None
        self._rescaled: dict[int, int] = {}  # parallelism by checkpoint, of barriers that came with one
        self._error: ShuffleError | None = None

    # -------------------------------------------------------------------------- the threads that receive

    def connected(self, input: InputChannel, source: Source, output: MapAttempt, *, fresh: bool) -> None:
        """`source` is where `input` comes from now, attempt `output`; `fresh`: its numbers are its own.

        :raises InvalidArgument: it does not begin where the input stands, and that matters.
        """
        with self.changed:
            input.attempt, input.gone = output, None
            if fresh:
                input.foreign = self._barriers.checkpoint
            input.connect(source, fresh=fresh, lossy=not self._config.keeps)

    def left(self, input: InputChannel, why: ShuffleError) -> None:
        """The producer of `input` is gone; another may come."""
        with self.changed:
            input.gone = why

    def put(self, input: InputChannel, source: Source, received: Received) -> None:
        """Take in what came.

        :raises StreamBroken: it is the end, and blocks are missing.
        """
        with self.changed:
            for block, stored in zip(received.blocks, received.stored, strict=True):
                self._barriers.block(input, block)
                self._append(input, QueuedBlock(block, stored, source, input.numbering))
            for mark in received.marks:
                # A reader may have been restored from a checkpoint after the end, which it has to be told again.
                if input.is_new(mark) or (isinstance(mark.marker, EndOfPartition) and not input.ended):
                    self._arrived(input, mark, received.totals)
            self.changed.notify_all()

    def fail(self, error: ShuffleError) -> None:
        """Whoever takes gets `error`, before anything that is there."""
        with self.changed:
            self._error = self._error or error
            self.changed.notify_all()

    @property
    def closed(self) -> bool:
        return self._error is not None

    # --------------------------------------------------------------------------------------- the task

    def take(self, timeout: float) -> tuple[InputChannel, QueuedBlock] | GateEvent | None:
        """A block, or what there is to say; None: all inputs have ended.

        :raises DeadlineExceeded: nothing came in time.
        :raises ShuffleError: why the reader is broken.
        """
        with self.changed:
            deadline = time.monotonic() + timeout
            while True:
                if self._error is not None:
                    raise self._error.with_traceback(None)
                self._check_alignment()
                found = self._events.popleft() if self._events else self._next()
                if found is not None:
                    return found
                if self._events:
                    continue
                if all(each.over for each in self.inputs.values()):
                    return None
                self._wait(deadline, timeout)

    def done(self) -> list[tuple[Source | None, Position]]:
        """How far the task has come in the output of each source."""
        with self.changed:
            return [(each.source, each.position()) for each in self.inputs.values()]

    def done_before(self, checkpoint: int, positions: Mapping[int, Position]) -> list[tuple[Source | None, Position]]:
        """Likewise at a checkpoint, without maps whose producer has changed since: it has other numbers."""
        with self.changed:
            inputs = [(self.inputs[map], position) for map, position in positions.items() if map in self.inputs]
            return [(each.source, position) for each, position in inputs if checkpoint > each.foreign]

    def lost(self, timeout: float) -> StreamBroken | None:
        """What is to be said instead of "nothing came within `timeout`": a producer is gone, and no other has come."""
        with self.changed:
            for each in self.inputs.values():
                if each.gone is not None and not each.over:
                    return StreamBroken(
                        f"the producer of map {each.map} is gone, and no other has come within {timeout:g} s: "
                        f"{each.gone.message}",
                        remedy="run this map again as a new attempt",
                        shuffle=self._shuffle,
                        output=each.attempt,
                    )
        return None

    def progress(self) -> tuple[int | None, list[InputStatistics]]:
        """The watermark, and what came of each map and partition."""
        with self.changed:
            inputs = self.inputs.values()
            rows = [row for each in inputs for row in each.progress(self._watermarks.of(each.map))]
            return self._watermarks.current, rows

    @property
    def blocked(self) -> tuple[int, ...]:
        """Maps that wait for the barriers of the others."""
        with self.changed:
            return tuple(map for map in self.inputs if map in self._barriers.blocked)

    # ------------------------------------------------------------------------- within, with the lock held

    def _next(self) -> tuple[InputChannel, QueuedBlock] | None:
        """The next block, one input after the other; markers on the way are dealt with, until there is news."""
        waiting = 0
        while waiting < len(self._ready) and not self._events:
            input = self._ready.popleft()
            if input.map in self._barriers.blocked:
                self._ready.append(input)
                waiting += 1
                continue
            item = input.items.popleft()
            if input.items:
                self._ready.append(input)
            if isinstance(item, QueuedBlock):
                input.took(item)
                self._watermarks.active(input.map)
                return input, item
            self._reached(input, item)
            waiting = 0
        return None

    def _wait(self, deadline: float, timeout: float) -> None:
        began = time.monotonic()
        if began >= deadline:
            silent = [map for map, each in self.inputs.items() if not each.over]
            raise DeadlineExceeded(
                f"nothing came within {timeout:g} s from maps {silent}",
                remedy="see whether the producers run, or raise option 'timeout'",
                shuffle=self._shuffle,
            )
        self.changed.wait((deadline if self._overtake_at is None else min(deadline, self._overtake_at)) - began)
        self.starved += time.monotonic() - began

    def _append(self, input: InputChannel, item: QueuedBlock | QueuedMarker) -> None:
        if not input.items:
            self._ready.append(input)
        input.append(item)

    def _arrived(self, input: InputChannel, mark: SequencedMarker, totals: dict[int, int]) -> None:
        marker = mark.marker
        if isinstance(marker, EndOfPartition):
            input.check_end(totals, lossy=not self._config.keeps)
            self._append(input, QueuedMarker(mark, input.numbering))
            self._publish(self._barriers.end_arrived(input))
            return
        self._append(input, QueuedMarker(mark, input.numbering))
        if isinstance(marker, Barrier):
            if marker.parallelism:
                self._rescaled[marker.checkpoint] = marker.parallelism
            if self._barriers.overtakes(marker):
                self._publish(self._barriers.arrived(input, marker.checkpoint))
                self._tidy()
            elif self._config.overtakes_late and self._overtake_at is None:
                self._overtake_at = time.monotonic() + self._config.alignment_timeout

    def _check_alignment(self) -> None:
        """Barriers that have been aligned for too long overtake."""
        if self._overtake_at is None or time.monotonic() < self._overtake_at:
            return
        self._overtake_at = None
        checkpoint = self._barriers.waiting(self._queued_barriers())
        if checkpoint is not None and not self._barriers.overtaking:
            self._publish(self._barriers.overtake(checkpoint))
            self._tidy()

    def _publish(self, events: Iterable[Barrier | Captured]) -> None:
        for each in events:
            if isinstance(each, Barrier):
                parallelism = self._rescaled.get(each.checkpoint, 0)
                self._rescaled = {n: count for n, count in self._rescaled.items() if n > each.checkpoint}
                self._events.append(replace(each, parallelism=parallelism))
                continue
            self._events.append(each)
            if isinstance(each, Captured):  # its time is over; that of the next begins
                self._overtake_at = None
                if self._config.overtakes_late and self._barriers.waiting(self._queued_barriers()) is not None:
                    self._overtake_at = time.monotonic() + self._config.alignment_timeout

    def _queued_barriers(self) -> Iterable[int]:
        for input in self.inputs.values():
            for item in input.items:
                if isinstance(item, QueuedMarker) and isinstance(item.mark.marker, Barrier):
                    yield item.mark.marker.checkpoint

    def _tidy(self) -> None:
        """Barriers were taken out of queues."""
        self._ready = deque(input for input in self._ready if input.items)

    def _reached(self, input: InputChannel, queued: QueuedMarker) -> None:
        """A marker is at the head of its input."""
        marker = queued.mark.marker
        input.passed(queued)
        if isinstance(marker, Barrier):
            self._publish(self._barriers.reached(input, marker.checkpoint))
        elif isinstance(marker, EndOfPartition):
            input.over = True
            self._publish(self._barriers.ended(input))
            self._risen(self._watermarks.ended(input.map))
            self._events.append(EndOfPartition(input.map))
        elif isinstance(marker, Watermark):
            self._risen(self._watermarks.advance(input.map, marker.time))
        elif isinstance(marker, Idle):
            self._risen(self._watermarks.idle(input.map))

    def _risen(self, time: int | None) -> None:
        if time is not None:
            self._events.append(Watermark(time))
