"""What a channel's messages look like on a Flight stream, and the check of what comes off it.

A batch of blocks is a RecordBatch, a row a block: `block` is its row of the block table, 32 bytes as docs/protocol.md
says, `payload` its bytes. Both are views of what the caller gave and, at the other end, of what arrived. The table is
one column because every column costs about 10 us of Python on the way out and again on the way in.
A batch of at most INLINE_BYTES goes in the metadata instead: copying it costs less than the Arrow message around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

import numpy as np
import pyarrow as pa

from shuffle_api.buffer import Buffer
from shuffle_api.errors import InvalidArgument
from shuffle_api.values import Totals
from shuffle_transport.blocks import BlockBatch
from shuffle_transport.checksum import BLOCK_ROW, crc32c
from shuffle_transport.proto import flight_shuffle_pb2 as pb

EXCHANGE_SCHEMA = pa.schema(
    [
        pa.field("block", pa.binary(BLOCK_ROW.itemsize), nullable=False),
        pa.field("payload", pa.large_binary(), nullable=False),
    ]
)
INLINE_BYTES = 16 << 10  # payload and table of a batch that travels in the metadata
MESSAGE_COST = 1 << 10  # credit for what a message occupies beside its payload
MAX_PAYLOAD = 1 << 30  # of one batch; Flight cannot send messages of 2 GiB
MAX_SUM = 1 << 48  # raw bytes, or records, of one batch: no sum over a stream leaves 64 bits
MAX_MESSAGE = 1 << 20  # bytes of one control message

_ROW, _TABLE = pa.binary(BLOCK_ROW.itemsize), pa.large_binary()
_ONE_ROW = Struct("<iIqqq")


@dataclass(frozen=True, slots=True)
class Sums:
    """What a batch adds to the totals of its direction, and the table its digest covers."""

    blocks: int
    bytes: int
    raw_bytes: int
    records: int
    table: Buffer

    @property
    def cost(self) -> int:
        """Credit that the batch takes: its payload, its table, and the message around them."""
        return self.bytes + self.blocks * BLOCK_ROW.itemsize + MESSAGE_COST

    def added_to(self, totals: Totals) -> Totals:
        return Totals(
            totals.blocks + self.blocks,
            totals.bytes + self.bytes,
            totals.raw_bytes + self.raw_bytes,
            totals.records + self.records,
            crc32c(self.table, totals.digest),
        )


def sums_of(rows: np.ndarray, payload_bytes: int) -> Sums:
    """Check a block table (contiguous, dtype BLOCK_ROW, shape [n], n > 0) against its payload, and add it up.

    :raises InvalidArgument: negative fields, a raw_length below the length, lengths that are not the payload's, or
        sums above MAX_PAYLOAD or MAX_SUM.
    """
    table = rows.data.cast("B")
    if len(rows) == 1:
        partition, _, length, raw, records = _ONE_ROW.unpack(table)
        sound = partition >= 0 and 0 <= length <= raw and records >= 0
    else:
        fields = rows.view("<i8").reshape(-1, 4)[:, 1:]
        length, raw, records = (int(n) for n in fields.sum(axis=0, dtype=np.float64))
        sound = bool(
            (rows["partition"] >= 0).all() and (fields >= 0).all() and (rows["raw_length"] >= rows["length"]).all()
        )
        if sound and max(raw, records) <= MAX_SUM:
            length, raw, records = fields.sum(axis=0).tolist()
    if not sound:
        raise InvalidArgument(
            "a block table with a negative field, or a raw_length below the length",
            remedy="send blocks that do not shrink uncompressed, with raw_length == length",
        )
    if length != payload_bytes or length > MAX_PAYLOAD or raw > MAX_SUM or records > MAX_SUM:
        raise InvalidArgument(
            f"a batch of {payload_bytes} payload bytes whose table says {length} bytes, {raw} raw, {records} records",
            remedy=f"table and payload must agree; at most {MAX_PAYLOAD} bytes, {MAX_SUM} raw bytes or records a batch",
        )
    return Sums(len(rows), length, raw, records, table)


def record_batch(rows: np.ndarray, payload: Buffer) -> pa.RecordBatch:
    """The message of a batch whose payloads lie back to back in `payload`. Neither argument is copied."""
    n = len(rows)
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(rows["length"], out=offsets[1:])
    blocks = pa.Array.from_buffers(_ROW, n, [None, pa.py_buffer(rows)])
    payloads = pa.Array.from_buffers(_TABLE, n, [None, pa.py_buffer(offsets), pa.py_buffer(payload)])
    return pa.RecordBatch.from_arrays([blocks, payloads], schema=EXCHANGE_SCHEMA)


def parse_record_batch(batch: pa.RecordBatch) -> tuple[BlockBatch, Sums]:
    """The blocks of a RecordBatch off the wire, as views.

    :raises InvalidArgument: other columns, nulls, no rows, or buffers that contradict each other.
    """
    if not batch.schema.equals(EXCHANGE_SCHEMA, check_metadata=False):
        raise InvalidArgument(
            "an exchange batch of other columns",
            remedy=f"send block:fixed_size_binary[{BLOCK_ROW.itemsize}] and payload:large_binary (docs/protocol.md)",
        )
    try:
        batch.validate(full=True)  # the offsets come from the peer: Arrow checks them against the buffers' real sizes
    except pa.ArrowException as error:
        raise InvalidArgument(f"malformed exchange batch: {error}", remedy="send valid Arrow record batches") from None
    n = batch.num_rows
    blocks, payloads = batch.columns
    if n == 0 or blocks.null_count or payloads.null_count:
        raise InvalidArgument("an exchange batch with nulls, or without rows", remedy="every field has a value")
    rows = np.frombuffer(blocks.buffers()[1], BLOCK_ROW, n, blocks.offset * BLOCK_ROW.itemsize)
    _, offset_buffer, data = payloads.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64, n + 1, payloads.offset * 8)
    first, end = int(offsets[0]), int(offsets[-1])
    if (np.diff(offsets) != rows["length"]).any():
        raise InvalidArgument("blocks of other lengths than their table says", remedy="table and payload must agree")
    payload = memoryview(data)[first:end] if data is not None else memoryview(b"")
    return BlockBatch(rows, payload), sums_of(rows, end - first)


def inline_batch(rows: np.ndarray, payload: Buffer) -> bytes:
    """The control message that carries a small batch."""
    return pb.ExchangeControl(rows=rows.tobytes(), payload=bytes(payload)).SerializeToString()


def parse_inline(control: pb.ExchangeControl) -> tuple[BlockBatch, Sums]:
    """The blocks of a small batch off the wire.

    :raises InvalidArgument: no whole table, or one that contradicts the payload.
    """
    table = control.rows
    if len(table) % BLOCK_ROW.itemsize:
        raise InvalidArgument(f"a block table of {len(table)} bytes", remedy=f"rows have {BLOCK_ROW.itemsize} bytes")
    rows = np.frombuffer(table, BLOCK_ROW)
    payload = memoryview(control.payload)
    return BlockBatch(rows, payload), sums_of(rows, payload.nbytes)
