"""Where a reader gets the output of one map from: this process, or another over a channel."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import NamedTuple

from shuffle_api.errors import (
    AttemptSuperseded,
    DeadlineExceeded,
    InvalidArgument,
    MapOutputLost,
    ServerUnreachable,
    StreamBroken,
)
from shuffle_api.streaming import EndOfPartition, Position
from shuffle_plugins.pipelined import wire
from shuffle_plugins.pipelined.entries import SequencedBlock, SequencedMarker
from shuffle_plugins.pipelined.stream_head import HeadRestorer
from shuffle_plugins.pipelined.subpartition_view import SubpartitionView
from shuffle_transport.channels import BlockChannel, Control, ReceivedBatch

MAY_PASS = (StreamBroken, ServerUnreachable, DeadlineExceeded, AttemptSuperseded, MapOutputLost)
"""Errors of a connection after which there may be another, perhaps to the next attempt."""


class Received(NamedTuple):
    """What came together: blocks, and the markers behind them.

    :ivar stored: by block, the argument of `Source.release` once it was processed.
    :ivar totals: with an end, the number of blocks of each partition.
    """

    blocks: list[SequencedBlock]
    stored: list[int]
    marks: list[SequencedMarker]
    totals: dict[int, int]


class Source(ABC):
    """The output of one attempt of one map. One thread receives; another releases and acknowledges."""

    first: Position
    """What comes first."""

    @abstractmethod
    def receive(self, timeout: float) -> Received:
        """What comes next.

        :raises DeadlineExceeded: nothing came in time.
        :raises ShuffleError: why nothing more will come.
        """

    @abstractmethod
    def release(self, stored: int) -> None:
        """A block was processed."""

    @abstractmethod
    def resize(self, window: int, timeout: float) -> None:
        """At most `window` bytes are to be on their way, from now on."""

    @abstractmethod
    def acknowledge(self, position: Position, timeout: float) -> None:
        """Nothing before `position` will be asked for again."""

    @abstractmethod
    def finish(self, timeout: float) -> None:
        """All was received, to the end, and processed."""

    @abstractmethod
    def close(self) -> None:
        """Leave. Idempotent."""


class ChannelSource(Source):
    """A producer in another process.

    :raises ShuffleError: why it does not say what comes first.
    """

    def __init__(self, channel: BlockChannel, timeout: float) -> None:
        self._channel = channel
        item = channel.receive(timeout)
        first, self._restorer = None, None
        if isinstance(item, Control):
            fields = wire.decode(item.message)
            first = wire.parse_position(fields.get("hello"))
            self._restorer = HeadRestorer() if fields.get("heads") is True else None
        if first is None:
            raise StreamBroken(f"the producer at {channel.peer} does not say what comes first")
        self.first, self._next = first, dict(first.blocks)

    def receive(self, timeout: float) -> Received:
        item = self._channel.receive(timeout)
        if item is None:
            raise StreamBroken(f"the producer at {self._channel.peer} left before the end")
        if isinstance(item, Control):
            return self._marks(item)
        return self._blocks(item)

    def _marks(self, item: Control) -> Received:
        pairs = [wire.decode_mark(fields) for fields in wire.decode(item.message).get("marks", ())]
        totals = {partition: number for _, found in pairs for partition, number in found.items()}
        return Received([], [], [mark for mark, _ in pairs], totals)

    def _blocks(self, batch: ReceivedBatch) -> Received:
        blocks, stored = [], []
        for (partition, _, length, raw_length, records), payload in zip(batch.rows.tolist(), batch.raw(), strict=True):
            number = self._next.get(partition)
            if number is None:
                raise InvalidArgument(f"a block of partition {partition}, which was not asked for")
            self._next[partition] = number + 1
            if self._restorer is not None:
                payload = self._restorer.whole(payload)
                raw_length = memoryview(payload).nbytes
            blocks.append(SequencedBlock(0, partition, number, records, payload, raw_length))
            stored.append(length)
        return Received(blocks, stored, [], {})

    def release(self, stored: int) -> None:
        self._channel.consumed(stored)

    def resize(self, window: int, timeout: float) -> None:
        self._channel.limit_window(window)
        self._channel.send_control(wire.encode(window=window), timeout)

    def acknowledge(self, position: Position, timeout: float) -> None:
        self._channel.send_control(wire.encode(ack=wire.position_fields(position)), timeout)

    def finish(self, timeout: float) -> None:
        self._channel.half_close(timeout)
        deadline = time.monotonic() + timeout
        while self._channel.receive(max(0.0, deadline - time.monotonic())) is not None:
            pass

    def close(self) -> None:
        self._channel.close()


class LocalSource(Source):
    """A producer in this process.

    :param window: bytes that are received and not released, from which on nothing more is taken.
    """

    def __init__(self, view: SubpartitionView, window: int) -> None:
        self._view, self._window = view, window
        self._held = 0
        self.first = view.position()

    def receive(self, timeout: float) -> Received:
        deadline = time.monotonic() + timeout
        with self._view.output.changed:  # notified by `release`
            self._view.settle()
            while self._held >= self._window and not self._view.at_mark:
                self._view.check()
                if not self._view.output.changed.wait(deadline - time.monotonic()):
                    raise DeadlineExceeded("the reader does not process what it has")
        blocks, marks = self._view.take(self._window // 4, max(0.0, deadline - time.monotonic()))
        if not blocks and not marks:
            raise DeadlineExceeded(f"nothing came within {timeout:g} s")
        sizes = [block.size for block in blocks]
        with self._view.output.changed:
            self._held += sum(sizes)
        ended = bool(marks) and isinstance(marks[-1].marker, EndOfPartition)
        return Received(blocks, sizes, marks, self._view.numbers() if ended else {})

    def release(self, stored: int) -> None:
        with self._view.output.changed:
            self._held -= stored
            self._view.output.changed.notify_all()

    def resize(self, window: int, timeout: float) -> None:
        self._window = window
        self._view.resize(window)

    def acknowledge(self, position: Position, timeout: float) -> None:
        self._view.acknowledge(position)

    def finish(self, timeout: float) -> None:
        self._view.close(finished=True)

    def close(self) -> None:
        self._view.close()
