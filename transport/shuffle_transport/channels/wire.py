"""What a channel's messages look like on a Flight stream, and the checks of what comes off it.

A batch of blocks is a RecordBatch, a row a block: `block` is its row of the block table, 32 bytes as docs/protocol.md
says, `payload` its bytes. Both are views of what the caller gave and, at the other end, of what arrived. The table is
one column because every column costs about 10 us of Python on the way out and again on the way in.
A batch of at most INLINE_BYTES goes in the metadata instead: copying it costs less than the Arrow message around it.
"""

from __future__ import annotations

from dataclasses import replace
from struct import Struct
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from shuffle_api.buffer import Buffer
from shuffle_api.errors import InvalidArgument
from shuffle_api.values import Totals
from shuffle_transport import messages
from shuffle_transport.blocks import add_table
from shuffle_transport.checksum import BLOCK_ROW, FEW_ROWS, PACKED_BLOCK_ROW
from shuffle_transport.proto import flight_shuffle_pb2 as pb

EXCHANGE_SCHEMA = pa.schema(
    [
        pa.field("block", pa.binary(BLOCK_ROW.itemsize), nullable=False),
        pa.field("payload", pa.large_binary(), nullable=False),
    ]
)
SERVED_SCHEMA = EXCHANGE_SCHEMA.with_metadata({b"leave": b"1"})
"""What a server sends that ends a stream when it gets LEAVE."""
LEAVE = pb.ExchangeControl(leave=True).SerializeToString()
INLINE_BYTES = 16 << 10  # payload and table of a batch that travels in the metadata
MESSAGE_COST = 32 << 10  # credit for what a message costs beside its payload, in memory and in time: docs/transport.md
MAX_PAYLOAD = 1 << 30  # of one batch; Flight cannot send messages of 2 GiB
MAX_SUM = (1 << 40) - 1  # raw bytes, or records, of one block
MAX_ROWS = 1 << 20  # blocks of one batch
MAX_MESSAGE = 1 << 20  # bytes of one control message
MAX_INT64 = (1 << 63) - 1
SHORT_TABLE = 8 << 10  # bytes of a block table that is copied rather than kept as a view

_ROW_BYTES = BLOCK_ROW.itemsize
_LARGEST_TABLE = MAX_ROWS * _ROW_BYTES
_PARTITION_SIGN = 1 << 31  # in the first eight bytes of a row, read as one number
_BLOCKS, _PAYLOADS = EXCHANGE_SCHEMA.types
_ROWS, _PAYLOAD = pb.ExchangeControl.ROWS_FIELD_NUMBER, pb.ExchangeControl.PAYLOAD_FIELD_NUMBER
_OFFSET, _TWO_OFFSETS = Struct("<q"), Struct("<qq")


class BatchMeta(NamedTuple):
    """What a batch is to its direction: its table, which the totals and the digest cover, and what it costs.

    :ivar size: payload bytes.
    :ivar table: rows of BLOCK_ROW, a view only if it is longer than SHORT_TABLE. Of what was received nobody has
        checked it yet: :func:`check_table`, `RunningTotals.check`.
    :ivar cost: credit that the batch takes: its payload, its table, and the message around them.
    """

    size: int
    table: bytes | memoryview
    cost: int

    @property
    def blocks(self) -> int:
        """How many there are."""
        return len(self.table) // _ROW_BYTES


class RunningTotals:
    """Totals that grow with each batch. Not thread-safe, but `totals` may be read beside `add`.

    Tables are added up, and checked, a hundred at a time: to do it with each batch was a third of what a message of
    4 MiB cost in Python. Long ones are added up at once: they are views (see Parcel), and a view would keep the whole
    message in memory until the others have come.

    :param checked: the tables added have been checked.
    """

    __slots__ = ("_checked", "_known", "_pending", "bytes")

    def __init__(self, *, checked: bool) -> None:
        self.bytes = 0
        self._checked = checked
        self._known = Totals()
        self._pending: list[bytes | memoryview] = []

    def add(self, meta: BatchMeta) -> None:
        """:raises InvalidArgument: see `check`."""
        size, table, _ = meta
        self.bytes += size
        self._pending.append(table)
        if len(self._pending) >= 100 or len(table) > SHORT_TABLE:
            self.check()
            self._known, self._pending = self.totals, []

    def check(self) -> None:
        """Check what was added lately, unless that was done before.

        :raises InvalidArgument: as `check_table`, of all these tables and their payloads together.
        """
        if not self._checked and self._pending:
            check_table(b"".join(self._pending), self.bytes - self._known.bytes, together=True)

    @property
    def totals(self) -> Totals:
        """Of all that was added. Nonsense, but no error, if that is unchecked nonsense."""
        found = add_table(self._known, b"".join(self._pending))
        return replace(
            found, bytes=self.bytes, raw_bytes=found.raw_bytes & MAX_INT64, records=found.records & MAX_INT64
        )


def batch_meta(table: bytes | memoryview, payload_bytes: int) -> BatchMeta:
    """:raises InvalidArgument: no whole table, or more than MAX_ROWS or MAX_PAYLOAD."""
    length = len(table)
    if length % _ROW_BYTES:
        raise InvalidArgument(f"a block table of {length} bytes", remedy=f"rows have {_ROW_BYTES} bytes")
    if length > _LARGEST_TABLE or payload_bytes > MAX_PAYLOAD:
        raise InvalidArgument(
            f"a batch of {length // _ROW_BYTES} blocks and {payload_bytes} payload bytes",
            remedy=f"send at most {MAX_ROWS} blocks and {MAX_PAYLOAD} bytes a batch",
        )
    return BatchMeta(payload_bytes, table, payload_bytes + length + MESSAGE_COST)


def check_table(table: bytes | memoryview, payload_bytes: int, *, together: bool = False) -> None:
    """Check a block table (whole rows of BLOCK_ROW, at least one) against its payload.

    :param together: they are those of several batches, for errors.
    :raises InvalidArgument: a negative field, one above MAX_SUM, a raw_length below the length, or lengths that are not
        the payload's.
    """
    if len(table) <= FEW_ROWS * _ROW_BYTES:
        # Numpy takes as long for one row as for a hundred; beside 4 MiB that pass through the caches, 80 us.
        bits = size = 0
        for partition, _, length, raw, records in PACKED_BLOCK_ROW.iter_unpack(table):
            bits |= partition | length | raw | records | raw - length
            size += length
    else:
        # One `or` over a column has the sign of its least and the size of its largest number. No field is above MAX_SUM
        # then, and there are little more than MAX_ROWS rows (a Tally gathers short tables only): no sum leaves 63 bits.
        words = _words(table)
        lengths, raws = words[:, 1], words[:, 2]
        first, length, raw, records = np.bitwise_or.reduce(words, axis=0).tolist()
        bits = length | raw | records | int(np.bitwise_or.reduce(raws - lengths))
        if first & _PARTITION_SIGN:
            bits = -1
        size = int(np.add.reduce(lengths))
    if 0 <= bits <= MAX_SUM and size == payload_bytes:
        return
    what = "batches" if together else "a batch"
    if not 0 <= bits <= MAX_SUM:
        raise InvalidArgument(
            f"{what} whose block table has a negative or too large field, or a raw_length below the length",
            remedy="blocks that do not shrink have raw_length == length",
        )
    raise InvalidArgument(
        f"{what} of {payload_bytes} payload bytes whose table says {size} bytes",
        remedy="table and payload must agree",
    )


def _words(table: bytes | memoryview) -> np.ndarray:
    """Four columns: partition and checksum, length, raw_length, records."""
    return np.frombuffer(table, "<i8").reshape(-1, 4)


def record_batch(lengths: np.ndarray, table: bytes | memoryview, payload: Buffer) -> pa.RecordBatch:
    """The message of a batch: its block table, and payloads of these lengths back to back. Nothing is copied."""
    n = len(lengths)
    if n == 1:
        offsets = pa.py_buffer(_TWO_OFFSETS.pack(0, memoryview(payload).nbytes))
    else:
        ends = np.zeros(n + 1, np.int64)
        np.add.accumulate(lengths, out=ends[1:])
        offsets = pa.py_buffer(ends)
    blocks = pa.Array.from_buffers(_BLOCKS, n, [None, pa.py_buffer(table)])
    payloads = pa.Array.from_buffers(_PAYLOADS, n, [None, offsets, pa.py_buffer(payload)])
    return pa.RecordBatch.from_arrays([blocks, payloads], schema=EXCHANGE_SCHEMA)


def parse_record_batch(batch: pa.RecordBatch) -> tuple[memoryview, BatchMeta]:
    """Payload and table of a RecordBatch off the wire, as views. Does not look into the table.

    :raises InvalidArgument: other columns, nulls, no rows, or buffers that contradict each other.
    """
    if not batch.schema.equals(EXCHANGE_SCHEMA, check_metadata=False):
        raise InvalidArgument(
            "an exchange batch of other columns",
            remedy=f"send block:fixed_size_binary[{_ROW_BYTES}] and payload:large_binary (docs/protocol.md)",
        )
    n = batch.num_rows
    blocks, payloads = batch.columns
    nulls, tables = blocks.buffers()
    no_payloads, offsets, data = payloads.buffers()
    if not n or nulls is not None or no_payloads is not None:  # Arrow has no such buffer where nothing is null
        raise InvalidArgument("an exchange batch with nulls, or without rows", remedy="every field has a value")
    # What was received may contradict itself. `validate` would find that, and costs more than all else here; so nothing
    # of the batch is used but its buffers, each as far as it reaches. Of the offsets nobody uses those between the
    # first and the last: the table says where blocks begin.
    start, at = blocks.offset * _ROW_BYTES, payloads.offset * 8
    size = 0 if data is None else data.size
    if tables is None or offsets is None or tables.size - start < n * _ROW_BYTES or offsets.size - at < n * 8 + 8:
        raise _malformed(f"{n} rows, for which its buffers are too short")
    table: bytes | memoryview = memoryview(tables)[start : start + n * _ROW_BYTES]
    if len(table) <= SHORT_TABLE:
        table = bytes(table)
    first, last = _OFFSET.unpack_from(offsets, at)[0], _OFFSET.unpack_from(offsets, at + n * 8)[0]
    if not 0 <= first <= last <= size:
        raise _malformed(f"payloads from {first} to {last}, of {size} bytes")
    payload = memoryview(data)[first:last] if data is not None else memoryview(b"")
    return payload, batch_meta(table, last - first)


def _malformed(what: str) -> InvalidArgument:
    return InvalidArgument(f"malformed exchange batch: {what}", remedy="send valid Arrow record batches")


def inline_batch(meta: BatchMeta, payload: Buffer) -> bytes:
    """The control message that carries a small batch; joined by hand, for an object of it takes twice as long."""
    size, table, _ = meta
    return b"".join((messages.bytes_head(_ROWS, len(table)), table, messages.bytes_head(_PAYLOAD, size), payload))


def parse_inline(table: bytes, payload: bytes) -> tuple[memoryview, BatchMeta]:
    """Payload and table of a small batch, as its control message had them. Does not look into the table.

    :raises InvalidArgument: no whole table.
    """
    return memoryview(payload), batch_meta(table, len(payload))
