"""The writer: gathers records into blocks, a block per partition at a time, and puts markers among them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from shuffle_api.buffer import Buffer
from shuffle_api.columnar.arrays import data_bytes
from shuffle_api.columnar.blocks import BlockCodec
from shuffle_api.columnar.gather import BatchGatherer
from shuffle_api.columnar.partitioners import Partitioner
from shuffle_api.columnar.reading import check_arrow, check_records
from shuffle_api.errors import DeadlineExceeded, InvalidArgument, ShuffleError, StreamBroken
from shuffle_api.interfaces import ShuffleWriter
from shuffle_api.periodic import PeriodicTask, guarded
from shuffle_api.records import LENGTH, MAX_RECORD
from shuffle_api.streaming import Barrier, EndOfPartition, Marker, WriterState
from shuffle_api.values import MapOutput, ShuffleSpec
from shuffle_plugins.pipelined.entries import load_aside
from shuffle_plugins.pipelined.options import PipelinedOptions
from shuffle_plugins.pipelined.producer_registry import ProducerRegistry
from shuffle_plugins.pipelined.result_partition import ResultPartition
from shuffle_plugins.pipelined.statistics import PipelinedWriterStatistics

BATCHES = -1
"""Marks rows of batches that are in no block yet, among partitions whose records are not."""

MOST_PIECE = 1 << 20
"""Bytes of a batch that are written at once: between pieces the writer waits for room."""
_LEAST = 0.0005  # seconds between looks
_LONG = 3600.0  # while no writer is open; a new one wakes the task


class OpenBlock:
    """Records of one partition that are in no block yet."""

    __slots__ = ("count", "data")

    def __init__(self) -> None:
        self.data, self.count = bytearray(), 0


class BatchPieces:
    """Rows of batches that are in no block yet, gathered in pieces for which there is room.

    :param put: a finished block: partition, payload, records.
    """

    def __init__(self, spec: ShuffleSpec, options: PipelinedOptions, put: Callable[[int, Buffer, int], None]) -> None:
        check_arrow(spec, "use write()")
        self._put, self._codec = put, BlockCodec(spec)
        self._most = max(1, min(MOST_PIECE, options.queue_bytes // 2))
        room = max(MOST_PIECE, 4 * options.block_bytes)
        self._gatherer = BatchGatherer(spec, self._encode, block_bytes=options.block_bytes, buffer_bytes=room)

    def of(self, batch: Any) -> Iterator[Any]:
        """The batch in pieces; an empty one is one piece."""
        rows = max(1, batch.num_rows * self._most // max(1, data_bytes(batch)))
        return (batch.slice(at, rows) for at in range(0, max(1, batch.num_rows), rows))

    def add(self, piece: Any, partitioner: Partitioner) -> None:
        self._gatherer.add(piece, partitioner)

    def flush(self) -> None:
        """Make blocks of all rows."""
        self._gatherer.flush()

    def _encode(self, partition: int, batch: Any) -> None:
        self._put(partition, self._codec.encode(batch), batch.num_rows)


class PipelinedWriter(ShuffleWriter):
    """One attempt of one map. `emit` and `flush` may be called beside `write`, by another thread.

    :param worker: the name of this process.
    :param leave: ends what this process does for the output.
    """

    def __init__(
        self,
        output: ResultPartition,
        registry: ProducerRegistry,
        worker: str,
        options: PipelinedOptions,
        leave: Callable[[ShuffleError], None],
    ) -> None:
        self._output, self._registry, self._worker, self._leave = output, registry, worker, leave
        self._options = options
        self._full_bytes = 0 if options.flush_timeout == 0 else options.block_bytes  # a block of so many is finished
        self._batches: BatchPieces | None = None
        self._partitions = output.spec.partitions
        self._blocks = [OpenBlock() for _ in range(self._partitions)]
        self._changed = output.changed
        self._dirty: set[int] = set()  # partitions with records that are in no block yet
        self.dirty_since: float | None = None
        self.barrier_waits_since: float | None = None
        self._committed: MapOutput | None = None
        self._failure: ShuffleError | None = None  # of a flush that nobody called: the next call raises it
        self._closed = False

    def write(self, partition: int, record: Buffer) -> None:
        """Append one record. Waits for room if `queue_bytes` wait for readers already.

        :raises Overloaded: no room until the deadline; the record is not written.
        :raises ShuffleError: as `ShuffleWriter.write`; the reader's error if it said one.
        """
        if type(record) is not bytes:
            record = memoryview(record).cast("B")
        size = len(record)
        if size > MAX_RECORD:
            raise InvalidArgument(f"a record of {size} bytes is too long", remedy="split it: the limit is 4 GiB")
        with self._changed:
            block = self._usable(partition)
            if not block.data:
                self._begin(partition)
            buffer = block.data
            buffer += LENGTH.pack(size)
            buffer += record
            block.count += 1
            if len(buffer) >= self._full_bytes:
                self._finish_block(partition)

    def write_block(self, partition: int, payload: Buffer, records: int) -> None:
        """Append many records at once, framed as `shuffle_api.records` says, as a block of its own.

        In a shuffle of other content the payload is what that is made of: for `arrow` an IPC stream of one batch.

        An immutable payload (`bytes`, an Arrow buffer of one) is not copied. Waits as `write`.

        :raises InvalidArgument: records < 0, and as `write`.
        """
        view = memoryview(payload)
        if not view.readonly:
            payload = bytes(view)
        with self._changed:
            if records < 0:
                raise InvalidArgument(f"records {records} is negative", shuffle=self._output.spec.id)
            block = self._usable(partition)
            self._output.locked_wait_for_room(view.nbytes, time.monotonic() + self._options.timeout)
            if BATCHES in self._dirty:
                self._finish_block(BATCHES)
            if block.data:
                self._finish_block(partition)
            self._check_open()
            self._output.locked_put(partition, payload, records)

    def write_batch(self, batch: Any, partitioner: Partitioner) -> None:
        """See `shuffle_api.columnar.SupportsWriteBatch`. Rows wait for others as records do, and for room as `write`.

        :raises Overloaded: no room until the deadline; some of the rows are written.
        """
        with self._changed:
            self._check_open()
            if self._batches is None:
                self._batches = BatchPieces(self._output.spec, self._options, self._output.locked_put)
            for piece in self._batches.of(batch):
                self._wait_for_room(data_bytes(piece))
                self._batches.add(piece, partitioner)
                if piece.num_rows:
                    self._gathers(BATCHES)
                if not self._full_bytes:
                    self._finish_blocks()

    def emit(self, marker: Marker) -> None:
        """Say `marker` to every reader, behind all that was written. Never waits for room or credit.

        An unaligned `Barrier` overtakes what waits; `state` says what that was.

        :raises InvalidArgument: the writer has committed or aborted; or a barrier asks for more tasks than partitions.
        :raises ShuffleError: why the output is broken.
        """
        with self._changed:
            self._check_open()
            if isinstance(marker, Barrier) and marker.parallelism > self._partitions:
                raise InvalidArgument(
                    f"a parallelism of {marker.parallelism} for {self._partitions} key groups",
                    remedy="rescale to at most one task per partition of the shuffle",
                    shuffle=self._output.spec.id,
                )
            self._finish_blocks()
            calls = self._output.locked_emit(marker)
            if isinstance(marker, Barrier):
                self.barrier_waits_since = time.monotonic()
        _call(calls)

    def state(self, checkpoint: int, timeout: float) -> WriterState:
        """This writer at the barrier of `checkpoint`, to be stored with it.

        Known at once, except with `aligned_with_timeout`: then when the barrier is out, or has overtaken; and except
        with a log on disk: then when the log has all before the barrier.

        :raises DeadlineExceeded: the barrier still waits, or the disk.
        :raises StorageFailed: the log cannot be written or read, or its disk hangs.
        :raises InvalidArgument: no such barrier was emitted, or a later one went out since.
        :raises ShuffleError: why the output is broken: then nothing is kept of it.
        """
        with self._changed:
            if (error := self._failure or self._output.error) is not None:
                raise error
            if not self._output.knows(checkpoint):
                raise InvalidArgument(f"no barrier {checkpoint} was emitted, or a later one has passed it")
            deadline = time.monotonic() + timeout
            while (found := self._output.locked_state(checkpoint)) is None:
                if not self._changed.wait(deadline - time.monotonic()):
                    if not self._output.locked_logged(checkpoint):
                        raise self._disk_is_late(f"stored barrier {checkpoint} and what is before it", timeout)
                    raise DeadlineExceeded(f"barrier {checkpoint} waits behind data for {timeout:g} s")
                if (error := self._failure or self._output.error) is not None:
                    raise error
        state, overtaken = found
        if any(block.stored for block in overtaken):
            try:
                overtaken = load_aside(overtaken).result(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise self._disk_is_late(f"returned the blocks that barrier {checkpoint} overtook", timeout) from None
        return replace(state, blocks=tuple(block.in_flight(state.map) for block in overtaken))

    def flush(self) -> None:
        """Let readers have all records written so far. Does not wait for them."""
        with self._changed:
            self._check_open()
            self._finish_blocks()

    def flush_late(self) -> None:
        """The plugin's: the time of records that wait for their block is up. Leaves them while there is no room."""
        if not self._changed.acquire(blocking=False):
            return
        try:
            if self._dirty and self.usable and not self._output.stalled:
                self._finish_blocks()
        finally:
            self._changed.release()

    def overtake_late(self) -> None:
        """The plugin's: barriers that are being aligned have waited for long enough."""
        with self._changed:
            self.barrier_waits_since = None
            calls = [] if self._output.error is not None else self._output.locked_overtake_late()
        _call(calls)

    def fail(self, error: ShuffleError) -> None:
        """The plugin's: what was written cannot be sent, so that every call but `abort` raises `error` from now on."""
        with self._changed:
            self._failure = self._failure or error
            self._dirty.clear()
            self.dirty_since = self.barrier_waits_since = None
            self._changed.notify_all()

    def commit(self) -> MapOutput:
        """The end of this map: readers get what is written, then the end. Does not wait for them; see `drain`."""
        if self._committed is None:
            self.emit(EndOfPartition(self._output.attempt.map))
            self._closed = True
            output = MapOutput(self._output.attempt, self._worker, self._output.totals)
            self._committed = self._registry.commit(self._output.spec.id, output)
        return self._committed

    def drain(self, timeout: float) -> None:
        """After `commit`: wait until every partition was read to its end.

        :raises DeadlineExceeded: they were not.
        :raises ShuffleError: why the output is broken.
        """
        output = self._output
        with self._changed:
            if not self._changed.wait_for(lambda: output.consumed or output.error is not None, timeout):
                raise DeadlineExceeded(f"the readers have not come to the end within {timeout:g} s")
            if output.error is not None and not output.consumed:
                raise output.error

    def abort(self) -> None:
        if self._committed is not None or self._closed:
            return
        self._closed = True
        error = StreamBroken(
            f"the producer of {self._output.attempt} gave up before its end",
            remedy="wait for its next attempt",
            worker=self._worker,
            shuffle=self._output.spec.id,
            output=self._output.attempt,
        )
        self._output.fail(error)  # readers hear why before they find that there is nothing here
        self._leave(error)
        try:
            self._registry.fail(self._output.spec.id, self._output.attempt, error.message)
        except ShuffleError:
            pass  # whoever reads has heard it from the output

    @property
    def name(self) -> str:
        """Which attempt of which shuffle, for messages."""
        return f"{self._output.attempt} of {self._output.spec.id}"

    @property
    def closed(self) -> bool:
        """It has committed or aborted."""
        return self._closed

    @property
    def usable(self) -> bool:
        """It is neither closed nor broken."""
        return not self._closed and self._failure is None and self._output.error is None

    def statistics(self) -> PipelinedWriterStatistics:
        """Queues, log and back-pressure."""
        return self._output.statistics()

    # The rest is called with the lock held.

    def _usable(self, partition: int) -> OpenBlock:
        if self._closed or self._failure is not None:
            self._check_open()
        if not 0 <= partition < self._partitions:
            self._output.spec.check_partition(partition)
        return self._blocks[partition]

    def _begin(self, partition: int) -> None:
        """A block begins: only if there is room for it, so that a writer ahead of its readers waits here."""
        check_records(self._output.spec, "write_batch() or write_block()")
        self._wait_for_room(self._options.block_bytes)
        self._gathers(partition)

    def _wait_for_room(self, size: int) -> None:
        self._output.locked_wait_for_room(size, time.monotonic() + self._options.timeout)
        self._check_open()

    def _gathers(self, partition: int) -> None:
        self._dirty.add(partition)
        if self.dirty_since is None:
            self.dirty_since = time.monotonic()

    def _finish_block(self, partition: int) -> None:
        if partition == BATCHES:
            assert self._batches is not None
            self._batches.flush()
            self._dirty.discard(BATCHES)
            return
        block = self._blocks[partition]
        if block.count:
            data, count, block.data, block.count = block.data, block.count, bytearray(), 0
            self._output.locked_put(partition, data, count)
        self._dirty.discard(partition)
        if not self._dirty:
            self.dirty_since = None

    def _finish_blocks(self) -> None:
        for partition in sorted(self._dirty):
            self._finish_block(partition)
        self.dirty_since = None

    def _disk_is_late(self, what: str, timeout: float) -> DeadlineExceeded:
        return DeadlineExceeded(
            f"the in-flight log in {self._output.log_path} has not {what} within {timeout:g} s",
            remedy="see whether its disk is busy or hangs, or raise the timeout",
            shuffle=self._output.spec.id,
            output=self._output.attempt,
        )

    def _check_open(self) -> None:
        if self._closed:
            state = "committed" if self._output.committed else "aborted"
            raise InvalidArgument(f"the writer has {state}", shuffle=self._output.spec.id, output=self._output.attempt)
        if (error := self._failure or self._output.error) is not None:
            raise error


def _call(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        try:
            call()
        except ShuffleError:
            pass  # that reader's own thread meets the same, and says so


class OutputFlusher:
    """One task per plugin that does what is due: flushes records that have waited for their block, ends alignments.

    It sleeps while no writer is open, and does not wake more often than it has to. What fails for one writer fails that
    writer, with its reason, and no other.

    :param flush_timeout: seconds that a record may wait; 0: writers flush themselves.
    """

    def __init__(self, flush_timeout: float) -> None:
        self._flush_timeout = flush_timeout
        self._lock = threading.Lock()
        self._writers: WeakKeyDictionary[PipelinedWriter, float | None] = WeakKeyDictionary()
        self._task = PeriodicTask("pipelined-flusher", self._look, max(flush_timeout, _LEAST))

    def add(self, writer: PipelinedWriter, alignment_timeout: float | None) -> None:
        """Look after a writer until it is closed or has failed.

        :param alignment_timeout: seconds after which its barriers overtake; None: they do not.
        """
        with self._lock:
            self._writers[writer] = alignment_timeout
        self._task.start()
        self._task.wake()

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._task.close()

    def _look(self) -> float:
        with self._lock:
            writers = [(writer, timeout) for writer, timeout in self._writers.items() if _open(writer, timeout)]
        now = time.monotonic()
        return min((self._look_at(writer, timeout, now) for writer, timeout in writers), default=_LONG)

    def _look_at(self, writer: PipelinedWriter, alignment_timeout: float | None, now: float) -> float:
        """Do what is due; seconds until it is worth to look again."""
        pause = max(self._flush_timeout, _LEAST) if self._flush_timeout else 60.0
        since = writer.dirty_since
        if self._flush_timeout and since is not None:
            left = since + self._flush_timeout - now
            if left <= 0:
                guarded(f"the flush of {writer.name}", writer.flush_late, writer.fail)
            else:
                pause = max(left, _LEAST)
        if alignment_timeout is not None:
            pause = min(pause, max(alignment_timeout / 4, _LEAST))
            if (emitted := writer.barrier_waits_since) is not None and now - emitted >= alignment_timeout:
                guarded(f"the alignment of {writer.name}", writer.overtake_late, writer.fail)
        return pause


def _open(writer: PipelinedWriter, alignment_timeout: float | None) -> bool:
    """There may be something to do: a barrier may still wait when the writer has committed."""
    return writer.usable or (alignment_timeout is not None and writer.barrier_waits_since is not None)
