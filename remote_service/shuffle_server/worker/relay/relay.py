"""The relay of a worker: streaming shuffles pass through its memory, from running writers to running readers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from shuffle_api.errors import InvalidArgument, ShuffleError, ShuttingDown, StreamBroken, UnknownShuffle
from shuffle_api.ids import ShuffleId
from shuffle_api.values import ShuffleSpec, Totals
from shuffle_server.worker.push_handler import Credit
from shuffle_server.worker.read_plan import MAX_BATCH_ROWS
from shuffle_server.worker.relay.streaming_shuffle import StreamingShuffle
from shuffle_server.worker.relay.values import (
    KEEPALIVE_SECONDS,
    TICK_SECONDS,
    MapEnd,
    RelayChunk,
    RelayReader,
    RelayStatistics,
)
from shuffle_server.worker.worker import Worker
from shuffle_transport import messages
from shuffle_transport.blocks import BATCH_BYTES, CODEC_KEY, GET_SCHEMA, BlockBatch, add_rows, back_to_back, get_batch
from shuffle_transport.checksum import BLOCK_ROW
from shuffle_transport.proto import flight_shuffle_pb2 as pb

Message = tuple[pa.RecordBatch, bytes]


def relay_messages(
    shuffle: StreamingShuffle,
    reader: RelayReader,
    schema: pa.Schema,
    cancelled: Callable[[], bool],
    served: Callable[[int, int], None],
    refused: Callable[[ShuffleError], None],
) -> Generator[Message, None, None]:
    """The messages of one pull (docs/protocol.md, Relay). A failure is the last of them.

    `served` receives the blocks and payload bytes of each batch, `refused` a failure.
    """
    totals = Totals()
    spoken = shuffle.clock()
    try:
        while True:
            taken = shuffle.take(reader, BATCH_BYTES, MAX_BATCH_ROWS, TICK_SECONDS, shuffle.clock())
            if taken.chunks:
                batch, rows = _batch(schema, taken.chunks)
                totals = add_rows(totals, rows)
                served(len(rows), int(rows["length"].sum()))
                yield batch, b""
                del batch
                shuffle.read(reader, taken.chunks, shuffle.clock())
            for end in taken.ends:
                yield _said(schema, _map_end(end, reader.partition))
            if taken.finished:
                shuffle.finish(reader)
                yield _said(schema, pb.GetControl(end=messages.totals_message(totals)))
                return
            now = shuffle.clock()
            if taken.chunks or taken.ends:
                spoken = now
                continue
            if cancelled():
                return
            shuffle.watch(now)
            if now - spoken > KEEPALIVE_SECONDS:
                spoken = now
                yield _said(schema, pb.GetControl())
    except ShuffleError as error:
        refused(error)
        yield _said(schema, pb.GetControl(error=messages.error_message(error)))
    finally:
        shuffle.leave_reader(reader, "left", shuffle.clock())


def _batch(schema: pa.Schema, chunks: Sequence[RelayChunk]) -> tuple[pa.RecordBatch, np.ndarray]:
    """One batch of several chunks, and its block table. Small chunks are joined: one copy, fewer messages."""
    counts = [len(chunk.rows) for chunk in chunks]
    rows = chunks[0].rows if len(chunks) == 1 else np.concatenate([chunk.rows for chunk in chunks])
    payload = back_to_back([chunk.payload for chunk in chunks])
    maps = np.repeat(np.array([chunk.output.map for chunk in chunks], np.int64), counts)
    attempts = np.repeat(np.array([chunk.output.attempt for chunk in chunks], np.int64), counts)
    return get_batch(schema, maps, attempts, rows, payload), rows


def _map_end(end: MapEnd, partition: int) -> pb.GetControl:
    totals = messages.totals_message(end.parts.get(partition, Totals()))
    return pb.GetControl(map_end=pb.MapEnd(output=messages.attempt_of(end.output), totals=totals))


def _said(schema: pa.Schema, control: pb.GetControl) -> Message:
    none = np.empty(0, np.int64)
    return get_batch(schema, none, none, np.empty(0, BLOCK_ROW), b""), control.SerializeToString()


class Relay:
    """The relayed shuffles of a worker; made with the first stream of each. Thread-safe.

    :param timeout: seconds, see `StreamingShuffle`.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._lock = threading.Lock()
        self._shuffles: dict[ShuffleId, StreamingShuffle] = {}
        self._closed = False

    def shuffle(self, spec: ShuffleSpec) -> StreamingShuffle:
        """:raises ShuttingDown: after `close`."""
        with self._lock:
            if self._closed:
                raise ShuttingDown("the worker is stopping")
            return self._shuffles.setdefault(spec.id, StreamingShuffle(spec, self._timeout))

    def remove(self, shuffle: ShuffleId) -> None:
        """It was unregistered: its writers and readers get UnknownShuffle."""
        with self._lock:
            gone = self._shuffles.pop(shuffle, None)
        if gone is not None:
            gone.fail(UnknownShuffle(f"shuffle {shuffle} was unregistered", shuffle=shuffle))

    def watch(self) -> None:
        """Fail the shuffles whose one side has kept the other waiting; the streams that are there do so only when they
        get their turn, and a stream that waits for its peer does not."""
        with self._lock:
            shuffles = list(self._shuffles.values())
        for shuffle in shuffles:
            shuffle.watch(shuffle.clock())

    def close(self) -> None:
        """End all streams. Idempotent."""
        with self._lock:
            self._closed = True
            shuffles, self._shuffles = list(self._shuffles.values()), {}
        for shuffle in shuffles:
            shuffle.fail(ShuttingDown("the worker is stopping", shuffle=shuffle.spec.id))

    def statistics(self) -> RelayStatistics:
        with self._lock:
            shuffles = list(self._shuffles.values())
        return RelayStatistics(tuple(shuffle.statistics(shuffle.clock()) for shuffle in shuffles))


class RelayStreams:
    """What the Flight endpoint asks of the relay: requests become streams."""

    def __init__(self, worker: Worker, relay: Relay) -> None:
        self._worker, self._relay = worker, relay

    def sink(self, command: pb.PutCommand, cancelled: Callable[[], bool]) -> RelaySink:
        """Where the blocks of a relayed push go. Raises a typed error when it is refused."""
        spec, _ = self._worker.admit(command)
        if command.first_block:
            raise InvalidArgument(
                f"a relayed push that goes on at block {command.first_block}",
                remedy="begin a new attempt: relayed blocks are not kept",
                shuffle=spec.id,
            )
        return RelaySink(self._worker, command, self._open(spec), cancelled)

    def pull(
        self, ticket: pb.GetTicket, cancelled: Callable[[], bool], refused: Callable[[ShuffleError], None]
    ) -> tuple[pa.Schema, Generator[tuple[pa.RecordBatch, bytes], None, None]]:
        """Schema and messages of a relayed pull. Raises a typed error when it is refused."""
        spec = self._worker.opening(messages.shuffle_id(ticket.shuffle))
        if ticket.maps or ticket.ranges or ticket.end_partition != ticket.first_partition + 1:
            raise InvalidArgument(
                f"a relayed pull of partitions [{ticket.first_partition}, {ticket.end_partition}), or of single maps",
                remedy="read one partition per stream, of all maps",
                shuffle=spec.id,
            )
        if ticket.relay.attempt < 0:
            raise InvalidArgument(f"reader attempt {ticket.relay.attempt}", remedy="attempts count from 0")
        schema = GET_SCHEMA.with_metadata({CODEC_KEY: spec.codec.partition(":")[0].encode()})
        shuffle = self._open(spec)
        reader = shuffle.open_reader(ticket.first_partition, ticket.relay.attempt, shuffle.clock())
        served = self._worker.instruments.traffic.pulled
        return schema, relay_messages(shuffle, reader, schema, cancelled, served, refused)

    def _open(self, spec: ShuffleSpec) -> StreamingShuffle:
        shuffle = self._relay.shuffle(spec)
        try:
            self._worker.spec(spec.id)  # once more: it may have been unregistered before the relay knew it
        except ShuffleError:
            self._relay.remove(spec.id)
            raise
        return shuffle


class RelaySink:
    """One writer of a relayed shuffle, whose credit returns as its readers make progress.

    Its blocks are in memory until they are read.

    :param cancelled: whether the sender has gone.
    """

    held = 0  # an attempt that breaks off begins anew

    def __init__(
        self, worker: Worker, command: pb.PutCommand, shuffle: StreamingShuffle, cancelled: Callable[[], bool]
    ) -> None:
        self._worker, self._command, self._shuffle, self._cancelled = worker, command, shuffle, cancelled

    @contextmanager
    def open(self, credit: Credit) -> Iterator[None]:
        self._credit = credit
        output = messages.map_attempt(self._command.output)
        self._writer = self._shuffle.open_writer(output, credit, self._shuffle.clock())
        why = "broke off"
        try:
            yield
        except ShuffleError as error:
            why = f"was refused ({error.message})"
            raise
        finally:
            self._shuffle.leave_writer(self._writer, why, self._shuffle.clock())

    def append(self, batch: BlockBatch) -> int:
        self._shuffle.put(self._writer, batch, self._shuffle.clock())
        self._worker.instruments.traffic.pushed(len(batch.rows), batch.payload.nbytes)
        return 0

    def alive(self) -> None:
        self._shuffle.hear(self._writer, self._shuffle.clock())

    def end(self, control: pb.PutControl) -> None:
        """Wait until all of it has been read; the sender is shown meanwhile that the stream is alive."""
        shuffle, parts = self._shuffle, {part.partition: messages.totals(part.totals) for part in control.ends}
        self._totals = control.end
        shuffle.end_writer(self._writer, messages.totals(control.end), parts)
        sent = shuffle.clock()
        while not shuffle.wait_read(self._writer, TICK_SECONDS):
            now = shuffle.clock()
            if self._cancelled():
                raise StreamBroken("it was cancelled before all its blocks were read")
            shuffle.watch(now)
            if now - sent > KEEPALIVE_SECONDS:
                sent = now
                self._credit.repeat()

    def abort(self) -> None:
        self._shuffle.leave_writer(self._writer, "gave up", self._shuffle.clock())

    def commit(self) -> pb.Committed:
        return pb.Committed(output=self._command.output, worker=self._worker.info.id, totals=self._totals)
