"""What a channel's messages look like on a Flight stream, and the check of what comes off it.

A batch of blocks is a RecordBatch, a row a block: `block` is its row of the block table, 32 bytes as docs/protocol.md
says, `payload` its bytes. Both are views of what the caller gave and, at the other end, of what arrived. The table is
one column because every column costs about 10 us of Python on the way out and again on the way in.
A batch of at most INLINE_BYTES goes in the metadata instead: copying it costs less than the Arrow message around it.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from shuffle_api.buffer import Buffer
from shuffle_api.errors import InvalidArgument
from shuffle_api.values import Totals
from shuffle_transport.checksum import BLOCK_ROW, crc32c
from shuffle_transport.proto import flight_shuffle_pb2 as pb

EXCHANGE_SCHEMA = pa.schema(
    [
        pa.field("block", pa.binary(BLOCK_ROW.itemsize), nullable=False),
        pa.field("payload", pa.large_binary(), nullable=False),
    ]
)
INLINE_BYTES = 16 << 10  # payload and table of a batch that travels in the metadata
MESSAGE_COST = 16 << 10  # credit for what a message costs beside its payload, in memory and in time: docs/transport.md
MAX_PAYLOAD = 1 << 30  # of one batch; Flight cannot send messages of 2 GiB
MAX_SUM = (1 << 40) - 1  # raw bytes, or records, of one block
MAX_ROWS = 1 << 20  # blocks of one batch
MAX_MESSAGE = 1 << 20  # bytes of one control message

_ROW_BYTES = BLOCK_ROW.itemsize
_PARTITION_SIGN = 1 << 31  # in the first eight bytes of a row, read as one number
_SHORT_TABLE = 8 << 10
_BLOCKS, _PAYLOADS = EXCHANGE_SCHEMA.types
_ONE_ROW = Struct("<iIqqq")


class Sums(NamedTuple):
    """What a batch adds to the totals of its direction, the table that its digest covers, and what it costs.

    :ivar cost: credit that the batch takes: its payload, its table, and the message around them.
    """

    blocks: int
    size: int
    raw_bytes: int
    records: int
    table: bytes | memoryview
    cost: int


class Tally:
    """Totals that grow with each batch. Not thread-safe.

    Tables are added up a hundred at a time: that costs less than doing it at once. Views of short tables are copied for
    it, and of long ones added up at once, for a view would keep the whole message in memory until the others have come.
    """

    __slots__ = ("_known", "_pending", "blocks", "bytes")

    def __init__(self) -> None:
        self.blocks = self.bytes = 0
        self._known = Totals()
        self._pending: list[tuple[bytes | memoryview, int, int]] = []  # table, raw_bytes, records

    def add(self, sums: Sums) -> None:
        self.blocks += sums.blocks
        self.bytes += sums.size
        table = sums.table
        short = len(table) <= _SHORT_TABLE
        if short:
            table = bytes(table)
        self._pending.append((table, sums.raw_bytes, sums.records))
        if len(self._pending) >= 100 or not short:
            self._known, self._pending = self.totals, []

    @property
    def totals(self) -> Totals:
        known, pending = self._known, self._pending
        return Totals(
            self.blocks,
            self.bytes,
            known.raw_bytes + sum(raw for _, raw, _ in pending),
            known.records + sum(records for _, _, records in pending),
            crc32c(b"".join(table for table, _, _ in pending), known.digest),
        )


def sums_of(table: bytes | memoryview, payload_bytes: int) -> Sums:
    """Check a block table (whole rows of BLOCK_ROW, at least one) against its payload, and add it up.

    :raises InvalidArgument: negative fields, a raw_length below the length, lengths that are not the payload's, or
        more than MAX_ROWS, MAX_PAYLOAD or MAX_SUM.
    """
    n = len(table) // _ROW_BYTES
    if n == 1:  # without numpy: this is what a small message mostly costs
        partition, _, length, raw, records = _ONE_ROW.unpack(table)
        sound = partition >= 0 and 0 <= length <= raw <= MAX_SUM and 0 <= records <= MAX_SUM
    else:
        # Four columns of words: partition and checksum, length, raw_length, records. One `or` over a column has the
        # sign of its least and the size of its largest number. No field is above MAX_SUM and there are at most
        # MAX_ROWS, so no sum leaves 63 bits.
        words = np.ascontiguousarray(np.frombuffer(table, "<i8").reshape(n, 4).T)
        first, *fields = np.bitwise_or.reduce(words, axis=1).tolist()
        bits = fields[0] | fields[1] | fields[2] | int(np.bitwise_or.reduce(words[2] - words[1]))
        sound = n <= MAX_ROWS and 0 <= bits <= MAX_SUM and not first & _PARTITION_SIGN
        _, length, raw, records = np.add.reduce(words, axis=1).tolist()
    if not sound:
        raise InvalidArgument(
            f"a block table of {n} rows with a negative or too large field, or a raw_length below the length",
            remedy=f"send at most {MAX_ROWS} blocks a batch; those that do not shrink with raw_length == length",
        )
    if length != payload_bytes or length > MAX_PAYLOAD:
        raise InvalidArgument(
            f"a batch of {payload_bytes} payload bytes whose table says {length} bytes",
            remedy=f"table and payload must agree; send at most {MAX_PAYLOAD} bytes a batch",
        )
    return Sums(n, length, raw, records, table, length + n * _ROW_BYTES + MESSAGE_COST)


def record_batch(rows: np.ndarray, payload: Buffer) -> pa.RecordBatch:
    """The message of a batch whose payloads lie back to back in `payload`. Neither argument is copied."""
    n = len(rows)
    offsets = np.zeros(n + 1, np.int64)
    np.add.accumulate(rows["length"], out=offsets[1:])
    blocks = pa.Array.from_buffers(_BLOCKS, n, [None, pa.py_buffer(rows)])
    payloads = pa.Array.from_buffers(_PAYLOADS, n, [None, pa.py_buffer(offsets), pa.py_buffer(payload)])
    return pa.RecordBatch.from_arrays([blocks, payloads], schema=EXCHANGE_SCHEMA)


def parse_record_batch(batch: pa.RecordBatch) -> tuple[memoryview, Sums]:
    """Payload and checked table of a RecordBatch off the wire, as views.

    :raises InvalidArgument: other columns, nulls, no rows, or buffers that contradict each other.
    """
    if not batch.schema.equals(EXCHANGE_SCHEMA, check_metadata=False):
        raise InvalidArgument(
            "an exchange batch of other columns",
            remedy=f"send block:fixed_size_binary[{_ROW_BYTES}] and payload:large_binary (docs/protocol.md)",
        )
    try:
        # The offsets come from the peer: before anything looks into a buffer, even to count nulls, Arrow checks them.
        batch.validate(full=True)
    except pa.ArrowException as error:
        raise InvalidArgument(f"malformed exchange batch: {error}", remedy="send valid Arrow record batches") from None
    n = batch.num_rows
    blocks, payloads = batch.columns
    if n == 0 or blocks.null_count or payloads.null_count:
        raise InvalidArgument("an exchange batch with nulls, or without rows", remedy="every field has a value")
    start = blocks.offset * _ROW_BYTES
    table = memoryview(blocks.buffers()[1])[start : start + n * _ROW_BYTES]
    _, offset_buffer, data = payloads.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64, n + 1, payloads.offset * 8)
    payload = memoryview(data)[int(offsets[0]) : int(offsets[-1])] if data is not None else memoryview(b"")
    return payload, sums_of(table, payload.nbytes)


def inline_batch(table: bytes, payload: Buffer) -> bytes:
    """The control message that carries a small batch."""
    return pb.ExchangeControl(rows=table, payload=bytes(payload)).SerializeToString()


def parse_inline(control: pb.ExchangeControl) -> tuple[memoryview, Sums]:
    """Payload and checked table of a small batch off the wire.

    :raises InvalidArgument: no whole table, or one that contradicts the payload.
    """
    table, payload = control.rows, control.payload
    if len(table) % _ROW_BYTES:
        raise InvalidArgument(f"a block table of {len(table)} bytes", remedy=f"rows have {_ROW_BYTES} bytes")
    return memoryview(payload), sums_of(table, len(payload))
