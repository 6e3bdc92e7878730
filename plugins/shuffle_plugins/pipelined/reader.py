"""The reader: hands out blocks and markers of all its maps, acknowledges what was processed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias, TypeVar

from shuffle_api.buffer import Buffer
from shuffle_api.columnar.reading import batches_of, check_records
from shuffle_api.errors import DeadlineExceeded, InvalidArgument, ShuffleError
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import ShuffleReader
from shuffle_api.records import unpack_records
from shuffle_api.streaming import Barrier, Captured, EndOfPartition, Position, Watermark
from shuffle_api.values import ShuffleSpec
from shuffle_plugins.pipelined.async_iteration import AsyncIteration
from shuffle_plugins.pipelined.buffer_debloater import BufferDebloater
from shuffle_plugins.pipelined.closing import close_all
from shuffle_plugins.pipelined.input_channel import InputChannel, QueuedBlock
from shuffle_plugins.pipelined.input_gate import InputGate
from shuffle_plugins.pipelined.input_receiver import InputReceiver
from shuffle_plugins.pipelined.source import Source
from shuffle_plugins.pipelined.statistics import PipelinedReaderStatistics

MEASURE_EVERY = 0.2
"""Seconds between looks at how fast the task is."""

MOST_CAPTURED = 100
"""Checkpoints that may be acknowledged later."""

ACK_BYTES = 1 << 20
"""Payload of one map after which an iterator acknowledges."""


class DataBlock(NamedTuple):
    """Records of one partition that came together, framed as `shuffle_api.records` says.

    In a shuffle of content `arrow` the payload is a batch: `BlockCodec(handle.spec).decode(payload, records)` of
    `shuffle_api.columnar.blocks`.
    """

    partition: int
    map: int
    payload: Buffer
    records: int


T = TypeVar("T")
Event: TypeAlias = DataBlock | Barrier | Captured | Watermark | EndOfPartition


class ReadCounters:
    """What a reader has handed out since it was opened."""

    __slots__ = ("blocks", "bytes", "records", "since")

    def __init__(self) -> None:
        self.since = time.monotonic()
        self.blocks = self.bytes = self.records = 0


class MeasuredWindow:
    """A reader's window, by how fast its task is.

    :ivar now: the present one; `at`: when it was measured last.
    """

    def __init__(self, window: BufferDebloater) -> None:
        self.now, self.at = window, time.monotonic()
        self._bytes, self._starved = 0, 0.0  # processed, and seconds of waiting, by then

    def measure(self, size: int, starved: float) -> bool:
        """With so many bytes processed and so many seconds of waiting so far; whether the window has changed."""
        at, before = time.monotonic(), self.now
        busy = (at - self.at) - (starved - self._starved)
        self.now = before.measured(size - self._bytes, busy)
        self.at, self._bytes, self._starved = at, size, starved
        return self.now.window != before.window


class PipelinedReader(ShuffleReader):
    """Partitions of a shuffle, while they are written.

    Iterating, and `read_blocks`, acknowledge what they have handed out when more is asked for. `events` and `stream`
    leave that to the caller: a record counts as done when `acknowledge` says so.
    """

    def __init__(
        self,
        spec: ShuffleSpec,
        gate: InputGate,
        receivers: list[InputReceiver],
        window: BufferDebloater,
        timeout: float,
        leave: Callable[[], None],
    ) -> None:
        self._spec, self._gate, self._receivers = spec, gate, receivers
        self._window, self._timeout, self._leave = MeasuredWindow(window), timeout, leave
        self._handed: QueuedBlock | None = None
        self._counters = ReadCounters()
        self._unacknowledged: dict[int, int] = {}
        self._captured: dict[int, Mapping[int, Position]] = {}
        if (restore := gate.restored) is not None and restore.checkpoint >= 0:  # it may be acknowledged
            self._captured[restore.checkpoint] = restore.positions
        self._divided = False  # an iterator has handed out a part of a block
        self._asynchronous_ones: list[AsyncIteration[Any]] = []
        self._ended = self._closed = False

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        check_records(self._spec, "read_batches() or read_blocks()")
        for block in self._data():
            yield from self._records_of(block)

    def read_blocks(self) -> Iterator[tuple[int, MapAttempt, Buffer, int]]:
        """See `SupportsReadBlocks`."""
        for block in self._data():
            yield block.partition, self._attempt(block.map), block.payload, block.records

    def read_batches(self) -> Iterator[tuple[int, Any]]:
        """See `SupportsReadBatches`."""
        return batches_of(self, self._spec)

    def events(self) -> Iterator[Event]:
        """Blocks and markers, as they come, until every map has ended.

        A `Barrier` asks for a snapshot of what the caller made of everything before; `Captured` completes it. With
        `unaligned` barriers blocks may come between the two; they belong to after the snapshot.

        :raises DeadlineExceeded: nothing came within the option `timeout`. Asking again goes on.
        :raises StreamBroken: a producer is gone, and no other came within the option `timeout`; with `exactly_once` it
            cannot be replaced alone.
        :raises ShuffleError: as `ShuffleReader.__iter__`.
        """
        while (event := self._await()) is not None:
            yield event

    def stream(self) -> Iterator[tuple[int, bytes] | Barrier | Captured | Watermark | EndOfPartition]:
        """As `events`, records one by one as `(partition, record)`. To begin again within a block is refused."""
        check_records(self._spec, "events()")
        for event in self.events():
            if isinstance(event, DataBlock):
                yield from self._records_of(event)
            else:
                yield event

    def __aiter__(self) -> AsyncIteration[tuple[int, bytes]]:
        """As iterating, with `async for`: `(partition, record)`."""
        check_records(self._spec, "async_events()")
        blocks = self._data()

        def step() -> Iterator[tuple[int, bytes]] | None:
            block = next(blocks, None)
            return None if block is None else self._records_of(block)

        return self._asynchronous(step)

    def async_events(self) -> AsyncIteration[Event]:
        """As `events`, with `async for`."""

        def step() -> Iterator[Event] | None:
            event = self._await()
            return None if event is None else iter((event,))

        return self._asynchronous(step)

    def poll(self, timeout: float) -> Event | None:
        """The next event; None when every map has ended. What was returned before counts as processed.

        :raises DeadlineExceeded: nothing came in time.
        :raises ShuffleError: as `events`.
        """
        self._check_open()
        if self._divided:
            raise InvalidArgument(
                "a block was left in the middle",
                remedy="go on with the iterator that it came from",
                shuffle=self._spec.id,
            )
        self._release()
        if self._window.now.target and time.monotonic() - self._window.at >= MEASURE_EVERY:
            self._measure()
        found = self._gate.take(timeout)
        if found is None:
            self._ended = True
            return None
        if isinstance(found, tuple):
            return self._hand_out(*found)
        if isinstance(found, Captured):
            self._captured[found.checkpoint] = dict(found.state.positions)
            for checkpoint in sorted(self._captured)[:-MOST_CAPTURED]:
                del self._captured[checkpoint]
        return found

    def acknowledge(self, checkpoint: int | None = None) -> None:
        """Producers need not keep what is before here.

        :param checkpoint: before this checkpoint, one of the last hundred that were captured, or the one restored from;
            None: all that was handed out.
        :raises InvalidArgument: no such checkpoint was captured, or it or a later one was acknowledged before.
        """
        if checkpoint is None:
            done = self._gate.done()
        elif checkpoint in self._captured:
            done = self._gate.done_before(checkpoint, self._captured[checkpoint])
            self._captured = {later: found for later, found in self._captured.items() if later > checkpoint}
        else:
            raise InvalidArgument(f"checkpoint {checkpoint} was not captured here, or a later one was acknowledged")
        for source, position in done:
            self._acknowledge(source, position)

    def statistics(self) -> PipelinedReaderStatistics:
        """What is held, and waits."""
        held = {map: max(0, input.held) for map, input in self._gate.inputs.items()}
        watermark, inputs = self._gate.progress()
        counters = self._counters
        return PipelinedReaderStatistics(
            open_seconds=time.monotonic() - counters.since,
            held_bytes=sum(held.values()),
            held_by_map=held,
            window=self._window.now.window,
            blocks=counters.blocks,
            bytes=counters.bytes,
            records=counters.records,
            starved_seconds=self._gate.starved,
            blocked=self._gate.blocked,
            reconnects=sum(max(0, receiver.reconnects) for receiver in self._receivers),
            watermark=watermark,
            inputs=tuple(inputs),
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; after an error as a reader that has not come to the end: its successor may need all of it again."""
        self._ended = self._ended and error is None
        self.close()

    def close(self) -> None:
        """Leave. After the end of every map the producers need not wait for it any more."""
        if self._closed:
            return
        self._closed = True
        self._handed = None
        for iteration in self._asynchronous_ones:
            iteration.close()
        if self._ended:
            self._finish()
        self._gate.fail(InvalidArgument("the reader is closed", shuffle=self._spec.id))
        close_all([*(receiver.close for receiver in self._receivers), self._leave])

    # ------------------------------------------------------------------------------------------ within

    def _await(self) -> Event | None:
        try:
            return self.poll(self._timeout)
        except DeadlineExceeded as error:
            raise self._gate.lost(self._timeout) or error from None

    def _records_of(self, block: DataBlock) -> Iterator[tuple[int, bytes]]:
        """The records of a block. While an iterator is in the middle of it, no other one begins."""
        partition, self._divided = block.partition, True
        for record in unpack_records(block.payload):
            if self._closed:
                self._check_open()
            yield partition, record
        self._divided = False

    def _asynchronous(self, step: Callable[[], Iterator[T] | None]) -> AsyncIteration[T]:
        self._asynchronous_ones.append(found := AsyncIteration(step))
        return found

    def _data(self) -> Iterator[DataBlock]:
        self._begin_reading(self._spec.id)
        while (event := self._await()) is not None:
            for map in [map for map, size in self._unacknowledged.items() if size >= ACK_BYTES]:
                self._unacknowledged[map] = 0
                self._acknowledge(*self._before(self._gate.inputs[map], event))
            if isinstance(event, DataBlock):
                self._unacknowledged[event.map] = (
                    self._unacknowledged.get(event.map, 0) + memoryview(event.payload).nbytes
                )
                yield event
        self.acknowledge()
        self._finish()

    def _measure(self) -> None:
        if not self._window.measure(self._counters.bytes, self._gate.starved):
            return
        open_inputs = [input for input in self._gate.inputs.values() if input.source is not None and not input.ended]
        for input in open_inputs:
            try:
                assert input.source is not None
                input.source.resize(self._window.now.window // len(open_inputs), self._timeout)
            except ShuffleError:
                pass  # whoever receives from it meets the same

    def _before(self, input: InputChannel, event: Event) -> tuple[Source | None, Position]:
        """Where the input stands, without the block that was just taken."""
        item = self._handed
        with self._gate.changed:
            source, position = input.source, input.position()
            same = item is not None and item.numbering == input.numbering
        if item is not None and same and isinstance(event, DataBlock) and event.map == input.map:
            position = Position({**position.blocks, event.partition: item.block.number}, position.markers)
        return source, position

    def _hand_out(self, input: InputChannel, item: QueuedBlock) -> DataBlock:
        self._handed = item
        block, counters = item.block, self._counters
        counters.blocks += 1
        counters.bytes += block.size
        counters.records += block.records
        return DataBlock(block.partition, input.map, block.payload, block.records)

    def _release(self) -> None:
        item, self._handed = self._handed, None
        if item is not None and item.source is not None:
            try:
                item.source.release(item.stored)
            except ShuffleError:
                pass  # that source is closed: nobody counts any more

    def _acknowledge(self, source: Source | None, position: Position) -> None:
        if source is not None:
            try:
                source.acknowledge(position, self._timeout)
            except ShuffleError:
                pass  # whoever receives from it meets the same; acknowledgements are cumulative

    def _finish(self) -> None:
        deadline = time.monotonic() + self._timeout
        for input in self._gate.inputs.values():
            if input.source is not None:
                try:
                    input.source.finish(max(0.1, deadline - time.monotonic()))
                except ShuffleError:
                    pass  # the producer has gone; everything was received
                input.source = None

    def _attempt(self, map: int) -> MapAttempt:
        return self._gate.inputs[map].attempt or MapAttempt(map, 0)

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgument("the reader is closed", shuffle=self._spec.id)
