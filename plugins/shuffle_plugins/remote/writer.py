"""The writer of the `remote` plugin: records gather per partition, full buffers become blocks, blocks are pushed."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Generic, TypeAlias, TypeVar

from shuffle_api.buffer import Buffer
from shuffle_api.columnar.blocks import BlockCodec
from shuffle_api.columnar.gather import SliceGatherer
from shuffle_api.columnar.partitioners import Partitioner
from shuffle_api.columnar.pieces import PieceEncoder, Pieces
from shuffle_api.columnar.reading import check_arrow, check_records
from shuffle_api.columnar.slices import Slice
from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import ShuffleWriter
from shuffle_api.records import LENGTH, frame
from shuffle_api.values import MapOutput, ShuffleSpec
from shuffle_plugins.remote.connection import Connection
from shuffle_plugins.remote.data_pusher import DataPusher
from shuffle_plugins.remote.options import RemoteOptions
from shuffle_transport.blocks import Block, back_to_back
from shuffle_transport.checksum import crc32c, crc32c_of
from shuffle_transport.codecs import get_codec
from shuffle_transport.flight_client import PushTarget

T = TypeVar("T")
OnBlock: TypeAlias = Callable[[int, memoryview, int, bool], None]
"""Told of each block as it is made: partition, bytes before compression, records, and whether the bytes are the
caller's, who may change them later. In the order in which readers get the blocks of a partition."""

AT_ONCE_BYTES = 64 << 10  # a block that lies elsewhere is written to a file from there rather than copied


class _RecordBuffer:
    """The records of one partition that are not in a block yet."""

    __slots__ = ("data", "records")

    def __init__(self) -> None:
        self.data = bytearray()
        self.records = 0


class _Gathered(Generic[T]):
    """What goes on together, and its bytes."""

    __slots__ = ("bytes", "items")

    def __init__(self) -> None:
        self.items: list[T] = []
        self.bytes = 0

    def add(self, item: T, size: int) -> None:
        self.items.append(item)
        self.bytes += size

    def take(self) -> list[T]:
        items, self.items, self.bytes = self.items, [], 0
        return items


class RemoteWriter(ShuffleWriter):
    """One attempt of one map, written to one worker.

    Memory: `buffer_bytes` of gathered records and `push_bytes` of finished blocks, each exceeded by one record at most.
    Blocks that were pushed stay in memory until the worker says that it holds them, so a broken connection costs
    nothing: the same blocks are sent again, and the worker skips those it has. They are sent beside the writer's own
    work, so that a call raises what the push of earlier blocks has met. Where they go to a file (data_pusher.py),
    little waits for it.

    :param on_block: see `OnBlock`; must not wait.
    """

    def __init__(
        self,
        spec: ShuffleSpec,
        attempt: MapAttempt,
        connection: Connection,
        options: RemoteOptions,
        on_block: OnBlock | None = None,
    ) -> None:
        self._spec, self._options, self._on_block = spec, options, on_block
        self._codec = get_codec(spec.codec)
        target = PushTarget(spec.id, attempt, spec.partitions, self._codec.name)
        self._out = DataPusher(target, connection, options)
        self._buffers: dict[int, _RecordBuffer] = {}
        self._gathered = 0
        self._batches: SliceGatherer | None = None
        self._encoder: PieceEncoder | None = None
        self._push_batches = True
        self._chosen = False
        self._waiting = _Gathered[tuple[int, Buffer, int]]()  # (partition, raw bytes, records), until it is chosen
        self._blocks = _Gathered[Block]()  # finished, not yet sent
        self._result: MapOutput | None = None
        self._open = True

    def write(self, partition: int, record: Buffer) -> None:
        self._check(partition)
        check_records(self._spec, "write_batch() or write_block()")
        framed = frame(record)
        buffer = self._buffers.get(partition)
        if buffer is None:
            buffer = self._buffers[partition] = _RecordBuffer()
        buffer.data += framed
        buffer.records += 1
        self._gathered += len(framed)
        if len(buffer.data) >= self._options.block_bytes:
            self._finish(partition)
        elif self._gathered >= self._options.buffer_bytes:
            self._finish_all()

    def write_block(self, partition: int, payload: Buffer, records: int) -> None:
        """Append records that are framed already (`shuffle_api.records`), after those written before.

        In a shuffle of other content the payload is what that is made of: for `arrow` an IPC stream of one batch.
        """
        self._check(partition)
        data = memoryview(payload).cast("B")
        framed = self._spec.content == "records"
        if records < 0 or (framed and data.nbytes < records * LENGTH.size):
            raise InvalidArgument(
                f"{records} records in a block of {data.nbytes} bytes",
                remedy="frame them with shuffle_api.records.pack_records",
            )
        if partition in self._buffers:
            self._finish(partition)
        self._add(partition, data, records, copy=True)

    def write_batch(self, batch: Any, partitioner: Partitioner) -> None:
        """See `shuffle_api.columnar.SupportsWriteBatch`."""
        self._check_open()
        if self._batches is None:
            check_arrow(self._spec, "use write()")
            options = self._options
            self._batches = SliceGatherer(
                self._spec, self._add_slices, block_bytes=options.block_bytes, buffer_bytes=options.buffer_bytes
            )
        self._batches.add(batch, partitioner)

    def finish_blocks(self, partitions: Container[int]) -> bool:
        """Make blocks of what has gathered for these partitions (of batches: for all). Sends nothing, does not wait.

        Returns whether nothing is left that is in no block.
        """
        for partition in [partition for partition in self._buffers if partition in partitions]:
            self._finish(partition, push=False)
        if self._batches is not None:
            self._push_batches = False
            try:
                self._batches.flush()
            finally:
                self._push_batches = True
        return not self._buffers

    def commit(self) -> MapOutput:
        if self._result is None:
            if not self._open:
                raise InvalidArgument("the writer has aborted", remedy="write the map again as a new attempt")
            if self._batches is not None:
                self._batches.flush()
            self._finish_all(push=False)
            if not self._chosen:
                self._choose(file=bool(self._waiting.items) and self._waiting.bytes >= self._options.hand_over_from)
            self._result, self._open = self._out.commit(self._blocks.items), False
            self._blocks.take()
        return self._result

    def abort(self) -> None:
        if not self._open:
            return
        self._open = False
        self._buffers.clear()
        self._batches = None
        self._waiting.take()
        self._blocks.take()
        self._out.abort()

    def _check(self, partition: int) -> None:
        self._check_open()
        self._spec.check_partition(partition)

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidArgument("the writer has committed or aborted", remedy="write the map again as a new attempt")

    def _finish_all(self, push: bool = True) -> None:
        for partition in sorted(self._buffers):
            self._finish(partition, push)

    def _finish(self, partition: int, push: bool = True) -> None:
        buffer = self._buffers.pop(partition)
        self._gathered -= len(buffer.data)
        self._add(partition, memoryview(buffer.data), buffer.records, push)

    def _add_slices(self, partition: int, slices: list[Slice]) -> None:
        if self._encoder is None:
            assert self._batches is not None
            self._encoder = PieceEncoder(self._batches.schema, BlockCodec(self._spec))
        for pieces, records in self._encoder.encode(slices):
            self._add_pieces(partition, pieces, records)

    def _add_pieces(self, partition: int, pieces: Pieces, records: int) -> None:
        size = sum(map(len, pieces))
        as_they_are = self._chosen and self._on_block is None and not self._out.compresses
        if as_they_are and self._push_batches and size >= AT_ONCE_BYTES:
            # Written or sent from where the rows were brought into order.
            self._blocks.add(Block(partition, crc32c_of(pieces), size, records, pieces[0], pieces[1:]), size)
            if self._out.by_file or self._blocks.bytes >= self._out.worthwhile:
                self._send()
        else:
            self._add(partition, memoryview(back_to_back(pieces)), records, self._push_batches)

    def _add(self, partition: int, raw: memoryview, records: int, push: bool = True, *, copy: bool = False) -> None:
        """Make a block of `raw`; with `copy` that is somebody else's, who may change it later."""
        if self._on_block is not None:
            self._on_block(partition, raw, records, copy)
        if not self._chosen:
            self._waiting.add((partition, bytes(raw) if copy else raw, records), raw.nbytes)
            if push and self._waiting.bytes >= min(self._options.hand_over_from, self._options.push_bytes):
                self._choose()
            return
        at_once = push and copy and self._out.by_file and raw.nbytes >= AT_ONCE_BYTES
        self._finished(partition, raw, records, copy=copy and not at_once)
        if push and (at_once or self._blocks.bytes >= self._out.worthwhile):
            self._send()

    def _choose(self, *, file: bool = True) -> None:
        """Which way the blocks go; what has waited for that becomes blocks."""
        if file:
            self._out.choose()
        self._chosen = True
        for partition, raw, records in self._waiting.take():
            self._finished(partition, memoryview(raw), records)
        if self._blocks.bytes >= self._out.worthwhile:
            self._send()

    def _finished(self, partition: int, raw: memoryview, records: int, *, copy: bool = False) -> None:
        payload: Buffer | None = self._codec.compress(raw) if self._out.compresses else None
        if payload is None:
            payload = bytes(raw) if copy else raw
        block = Block(partition, crc32c(payload), raw.nbytes, records, payload)
        self._blocks.add(block, memoryview(payload).nbytes)

    def _send(self) -> None:
        self._out.send(self._blocks.take())
