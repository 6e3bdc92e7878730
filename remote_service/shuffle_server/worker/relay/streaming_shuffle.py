"""What is between the writers and the readers of one relayed shuffle: decisions and queues, no I/O.

* A block is handed out once, to the reader of its partition, in the order in which its writer sent it.
* What a writer sent costs its credit until it was read: the queues hold no more than the writers' windows.
* Either side may come first, and a task that leaves before anything of it was handed on may come again as a new
  attempt. Later its partners have blocks that no new attempt could take back, so the shuffle fails as a whole, for
  all of them, with an error that names who left. Engines then run both sides again, as a new shuffle.
* The end of a map is its writer's statement, per partition; the reader gets it behind the blocks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence

from shuffle_api.clock import LOOK_SHARE, ServingClock
from shuffle_api.errors import (
    AttemptSuperseded,
    CommitMismatch,
    DeadlineExceeded,
    MapOutputLost,
    ShuffleError,
)
from shuffle_api.ids import MapAttempt
from shuffle_api.values import ShuffleSpec, Totals, name_numbers
from shuffle_server.worker.relay.values import (
    MapEnd,
    RelayBatch,
    RelayChunk,
    RelayReader,
    RelayWriter,
    Sender,
    StreamStatistics,
    Taken,
    chunks_of,
)
from shuffle_transport.blocks import BlockBatch, add_rows
from shuffle_transport.messages import error_message, typed_error

AGAIN = "run the tasks of both sides again, as a new shuffle: relayed blocks are not kept"


class _PartitionQueue:
    """The queue of one partition."""

    __slots__ = ("changed", "chunks", "reader", "since")

    def __init__(self, lock: threading.Lock, now: float) -> None:
        self.changed = threading.Condition(lock)
        self.chunks: deque[RelayChunk] = deque()
        self.reader: RelayReader | None = None
        self.since = now  # when it began to be without a reader


class StreamingShuffle:
    """One relayed shuffle. Thread-safe. Times are those of `clock`.

    :param timeout: seconds for which a side may be missing, a writer silent, a reader stuck.
    :ivar clock: a worker that stood still has read nothing of what came meanwhile. To be looked at LOOKS_PER_TIMEOUT
        times in `timeout`, or more often.
    """

    def __init__(self, spec: ShuffleSpec, timeout: float) -> None:
        self.spec, self._timeout = spec, timeout
        self.clock = ServingClock(LOOK_SHARE * timeout)
        self._lock = threading.Lock()
        self._read = threading.Condition(self._lock)
        self._queues: dict[int, _PartitionQueue] = {}
        self._writers: dict[int, RelayWriter] = {}
        self._newest: dict[int, int] = {}  # attempt per map: what is older, or has left, is refused
        self._ends: list[MapEnd] = []
        self._writer_left = float("-inf")
        self._failure: ShuffleError | None = None

    # ------------------------------------------------------------------ writers

    def open_writer(self, output: MapAttempt, sender: Sender, now: float) -> RelayWriter:
        """An attempt of a map begins.

        :raises InvalidArgument: there is no such map.
        :raises AttemptSuperseded: this attempt, or a newer one, was here before; or blocks of an older one were read.
        :raises ShuffleError: the failure of the shuffle.
        """
        self.spec.check_map(output.map)
        with self._lock:
            self._check()
            if output.attempt <= self._newest.get(output.map, -1):
                raise self._superseded(output, f"attempt {self._newest[output.map]} of this map was here before")
            older = self._writers.get(output.map)
            if older is not None and (older.handed_on or older.ended):
                raise self._superseded(output, f"blocks of attempt {older.output.attempt} were handed on already")
            if older is not None:
                self._drop(older)
            writer = self._writers[output.map] = RelayWriter(output, sender, now)
            self._newest[output.map] = output.attempt
        if older is not None:
            older.sender.failed(self._superseded(older.output, f"attempt {output.attempt} took its place"))
        return writer

    def put(self, writer: RelayWriter, batch: BlockBatch, now: float) -> None:
        """Queue a batch, which is kept without a copy until all of it was read.

        :raises InvalidArgument: a partition that does not exist.
        :raises ShuffleError: the failure of the shuffle, or AttemptSuperseded.
        """
        chunks = chunks_of(batch, writer, now)
        for chunk in chunks:
            self.spec.check_partition(int(chunk.rows["partition"][0]))
        with self._lock:
            self._check_writer(writer)
            writer.heard_at = now
            writer.totals = add_rows(writer.totals, batch.rows)
            writer.unread += 1
            for chunk in chunks:
                partition = int(chunk.rows["partition"][0])
                writer.parts[partition] = add_rows(writer.parts.get(partition, Totals()), chunk.rows)
                queue = self._queue(partition, now)
                if not queue.chunks:
                    queue.since = now
                    if queue.reader is not None and not queue.reader.holding:
                        queue.reader.moved = now
                chunk.batch.chunks += 1
                queue.chunks.append(chunk)
                queue.changed.notify_all()

    def hear(self, writer: RelayWriter, now: float) -> None:
        """The writer is alive. Raises as `put`."""
        with self._lock:
            self._check_writer(writer)
            writer.heard_at = now

    def end_writer(self, writer: RelayWriter, stated: Totals, parts: Mapping[int, Totals]) -> None:
        """The writer's statement: these totals, and so much of them in each partition.

        :raises CommitMismatch: that is not what came.
        :raises ShuffleError: as `put`.
        """
        with self._lock:
            self._check_writer(writer)
            if stated != writer.totals or parts != writer.parts:
                raise CommitMismatch(
                    f"the sender states {stated} in partitions {name_numbers(parts)}; "
                    f"what came is {writer.totals} in partitions {name_numbers(writer.parts)}",
                    remedy=AGAIN,
                    shuffle=self.spec.id,
                    output=writer.output,
                )
            writer.ended = True
            self._ends.append(MapEnd(writer.output, dict(parts)))
            for queue in self._queues.values():
                queue.changed.notify_all()

    def wait_read(self, writer: RelayWriter, timeout: float) -> bool:
        """Wait until all that the writer sent has been read; False after `timeout` seconds. Raises as `put`."""
        with self._read:
            self._read.wait_for(lambda: not writer.unread or self._failure is not None, timeout)
            self._check_writer(writer)
            return not writer.unread

    def leave_writer(self, writer: RelayWriter, why: str, now: float) -> None:
        """The writer's stream is over. Unless all of it was read (`wait_read`), it failed: `why`."""
        with self._lock:
            if self._failure is not None or self._writers.get(writer.output.map) is not writer:
                return
            if writer.ended and not writer.unread:
                return
            if not writer.handed_on and not writer.ended:
                self._drop(writer)
                del self._writers[writer.output.map]
                self._writer_left = now
                return
        self.fail(
            MapOutputLost(
                f"the writer {why} before all its blocks were handed on",
                remedy=AGAIN,
                shuffle=self.spec.id,
                output=writer.output,
            ),
            known_to=writer,
        )

    # ------------------------------------------------------------------ readers

    def open_reader(self, partition: int, attempt: int, now: float) -> RelayReader:
        """A reader of a partition begins.

        :raises InvalidArgument: there is no such partition.
        :raises AttemptSuperseded: the partition has a newer reader, or one that was given blocks.
        :raises ShuffleError: the failure of the shuffle.
        """
        self.spec.check_partition(partition)
        with self._lock:
            self._check()
            queue = self._queue(partition, now)
            older = queue.reader
            if older is not None and (older.received or older.finished or older.attempt >= attempt):
                raise AttemptSuperseded(
                    f"partition {partition} is read by attempt {older.attempt}, not by attempt {attempt}: "
                    "relayed blocks are handed out once",
                    remedy=AGAIN,
                    shuffle=self.spec.id,
                )
            queue.reader = RelayReader(partition, attempt, since=now, moved=now)
            queue.changed.notify_all()
            return queue.reader

    def take(self, reader: RelayReader, most_bytes: int, most_blocks: int, wait: float, now: float) -> Taken:
        """The next chunks of the reader's partition, at least one even if it is larger, and the maps that have ended.

        Waits up to `wait` seconds; empty after that.

        :raises AttemptSuperseded: another reader took its place.
        :raises ShuffleError: the failure of the shuffle.
        """
        queue = self._queues[reader.partition]
        with queue.changed:
            queue.changed.wait_for(
                lambda: (
                    self._failure is not None
                    or queue.reader is not reader
                    or queue.chunks
                    or len(self._ends) > reader.ends_sent
                    or reader.ends_sent == self.spec.maps
                ),
                wait,
            )
            self._check()
            if queue.reader is not reader:
                raise AttemptSuperseded(
                    f"another attempt reads partition {reader.partition} instead of attempt {reader.attempt}",
                    shuffle=self.spec.id,
                )
            chunks: list[RelayChunk] = []
            size = blocks = 0
            while queue.chunks:
                chunk = queue.chunks[0]
                size, blocks = size + chunk.payload.nbytes, blocks + len(chunk.rows)
                if chunks and (size > most_bytes or blocks > most_blocks):
                    break
                chunks.append(queue.chunks.popleft())
                chunk.batch.writer.handed_on = True
            ends: Sequence[MapEnd] = ()
            if not queue.chunks:
                ends, reader.ends_sent = self._ends[reader.ends_sent :], len(self._ends)
            reader.received |= bool(chunks)
            reader.holding, reader.moved = len(chunks), now
            return Taken(chunks, ends, not queue.chunks and reader.ends_sent == self.spec.maps)

    def read(self, reader: RelayReader, chunks: Sequence[RelayChunk], now: float) -> None:
        """These chunks have left memory."""
        done: list[RelayBatch] = []
        with self._lock:
            reader.holding, reader.moved = 0, now
            for chunk in chunks:
                chunk.batch.chunks -= 1
                if not chunk.batch.chunks:
                    done.append(chunk.batch)
                    chunk.batch.writer.unread -= 1
            self._read.notify_all()
        for batch in done:
            batch.writer.sender.consumed(batch.size)

    def finish(self, reader: RelayReader) -> None:
        """The reader has been told everything."""
        with self._lock:
            reader.finished = True

    def leave_reader(self, reader: RelayReader, why: str, now: float) -> None:
        """The reader's stream is over. Unless it is finished, it failed: `why`."""
        with self._lock:
            queue = self._queues[reader.partition]
            if self._failure is not None or reader.finished or queue.reader is not reader:
                return
            if not reader.received:
                queue.reader, queue.since = None, now
                return
        self.fail(
            MapOutputLost(
                f"the reader of partition {reader.partition} (attempt {reader.attempt}) {why} with blocks it was given",
                remedy=AGAIN,
                shuffle=self.spec.id,
            )
        )

    # ------------------------------------------------------------------ failure

    def fail(self, error: ShuffleError, known_to: RelayWriter | None = None) -> None:
        """Drop everything and give `error` to all who are here or come later. The first one counts."""
        with self._lock:
            if self._failure is not None:
                return
            self._failure = error
            for queue in self._queues.values():
                queue.chunks.clear()
                queue.changed.notify_all()
            self._read.notify_all()
            writers = [writer for writer in self._writers.values() if writer is not known_to]
        for writer in writers:
            writer.sender.failed(error)

    def watch(self, now: float) -> None:
        """Fail if somebody has kept the others waiting for too long."""
        with self._lock:
            overdue = None if self._failure is not None else self._overdue(now - self._timeout)
        if overdue is not None:
            said = f"{overdue} for {self._timeout:g} s"
            self.fail(DeadlineExceeded(said, remedy=AGAIN, shuffle=self.spec.id))

    def statistics(self, now: float) -> StreamStatistics:
        with self._lock:
            queued = [chunk for queue in self._queues.values() for chunk in queue.chunks]
            return StreamStatistics(
                self.spec.id,
                writers=sum(not writer.ended or writer.unread > 0 for writer in self._writers.values()),
                readers=sum(queue.reader is not None and not queue.reader.finished for queue in self._queues.values()),
                totals=_sums([writer.totals for writer in self._writers.values()]),
                queued_blocks=sum(len(chunk.rows) for chunk in queued),
                queued_records=sum(int(chunk.rows["records"].sum()) for chunk in queued),
                queued_bytes=sum(chunk.payload.nbytes for chunk in queued),
                lag_seconds=max((now - chunk.batch.came for chunk in queued), default=0.0),
            )

    # The rest is called with the lock held.

    def _overdue(self, before: float) -> str | None:
        for writer in self._writers.values():
            if not writer.ended and writer.heard_at < before:
                return f"no message came from the writer of {writer.output}"
        for partition, queue in self._queues.items():
            reader = queue.reader
            if reader is None:
                if queue.chunks and queue.since < before:
                    return f"partition {partition} has blocks and no reader"
            elif (queue.chunks or reader.holding) and reader.moved < before:
                return f"the reader of partition {partition} (attempt {reader.attempt}) took nothing"
            elif not reader.finished and max(reader.since, self._writer_left) < before:
                missing = set(range(self.spec.maps)).difference(self._writers)
                if missing:
                    return f"a reader waits, but there is no writer of maps {name_numbers(missing)}"
        return None

    def _queue(self, partition: int, now: float) -> _PartitionQueue:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = _PartitionQueue(self._lock, now)
        return queue

    def _drop(self, writer: RelayWriter) -> None:
        for queue in self._queues.values():
            queue.chunks = deque(chunk for chunk in queue.chunks if chunk.batch.writer is not writer)

    def _check(self) -> None:
        if self._failure is not None:
            raise typed_error(error_message(self._failure))  # one for each who raises it

    def _check_writer(self, writer: RelayWriter) -> None:
        self._check()
        if self._writers.get(writer.output.map) is not writer:
            raise self._superseded(writer.output, "a newer attempt took its place")

    def _superseded(self, output: MapAttempt, why: str) -> AttemptSuperseded:
        return AttemptSuperseded(f"{output} is refused: {why}", shuffle=self.spec.id, output=output)


def _sums(totals: Sequence[Totals]) -> Totals:
    return Totals(
        sum(each.blocks for each in totals),
        sum(each.bytes for each in totals),
        sum(each.raw_bytes for each in totals),
        sum(each.records for each in totals),
    )
