"""Blocks and the RecordBatches that carry them: the schemas of push and pull.

A row is a block (docs/protocol.md). Nothing here copies a payload that arrives: a received block is a
view into the batch's buffer. Payloads to send are gathered once, into the batch's single buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shuffle_api.buffer import Buffer
from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import MapAttempt
from shuffle_api.values import Totals
from shuffle_transport.checksum import BLOCK_ROW, FEW_ROWS, PACKED_BLOCK_ROW, crc32c, encoded_rows

PUT_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("crc32c", pa.uint32(), nullable=False),
        pa.field("raw_length", pa.int64(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("payload", pa.large_binary(), nullable=False),
    ]
)
GET_SCHEMA = pa.schema(
    [pa.field("map", pa.int64(), nullable=False), pa.field("attempt", pa.int64(), nullable=False), *PUT_SCHEMA]
)
CODEC_KEY = b"codec"  # schema metadata of a pull: how its blocks are compressed

BATCH_BYTES = 2 << 20  # payload a batch aims at
MAX_BATCH_BYTES = 1 << 30  # payload a batch may have; Flight cannot send messages of 2 GiB
MAX_SUM = 1 << 48  # raw bytes, or records, that a batch may speak of
TABLE_FIELDS = ("partition", "crc32c", "raw_length", "records")


@dataclass(frozen=True, slots=True)
class Block:
    """One block as it is stored: `payload` of `row["length"]` bytes, compressed unless that equals raw_length.

    A payload that lies in several places is `payload` and then `more`.
    """

    partition: int
    crc32c: int
    raw_length: int
    records: int
    payload: Buffer
    more: tuple[Buffer, ...] = ()

    @property
    def pieces(self) -> tuple[Buffer, ...]:
        """The whole payload, as many pieces as it has."""
        return (self.payload, *self.more)

    @property
    def length(self) -> int:
        return sum([memoryview(piece).nbytes for piece in self.pieces])


def back_to_back(pieces: Sequence[Buffer]) -> Buffer:
    """The bytes of all pieces, not copied when there is one."""
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@dataclass(frozen=True, slots=True)
class BlockBatch:
    """The blocks of one received batch.

    `rows` is their block table (dtype BLOCK_ROW, shape [n]); `payload` their bytes back to back, in the
    order of the rows. `outputs` says per row which map output it is from (pull only, else empty).
    """

    rows: np.ndarray
    payload: memoryview
    outputs: Sequence[MapAttempt] = ()

    def payloads(self) -> Iterator[memoryview]:
        """Views of the single payloads, in order."""
        ends = np.cumsum(self.rows["length"]).tolist()
        return (self.payload[start:end] for start, end in zip([0, *ends], ends, strict=False))


def table_rows(blocks: Sequence[Block]) -> np.ndarray:
    """The block table of `blocks`, dtype BLOCK_ROW, in their order."""
    # A third of the time that it takes to fill an array row by row, or to make one of tuples.
    rows = [PACKED_BLOCK_ROW.pack(b.partition, b.crc32c, b.length, b.raw_length, b.records) for b in blocks]
    return np.frombuffer(bytearray().join(rows), BLOCK_ROW)


def totals_of(rows: np.ndarray) -> Totals:
    """Totals and digest of a whole block table."""
    return add_rows(Totals(), rows)


def add_rows(totals: Totals, rows: np.ndarray) -> Totals:
    """`totals` continued by more rows of the same table."""
    return add_table(totals, encoded_rows(rows))


def add_table(totals: Totals, table: bytes | memoryview) -> Totals:
    """As `add_rows`, of rows as they are sent: whole rows of BLOCK_ROW."""
    count = len(table) // BLOCK_ROW.itemsize
    if count <= FEW_ROWS:  # as most batches have, one by one: each call of numpy takes as long as several rows
        size = raw = records = 0
        for _, _, length, raw_length, n in PACKED_BLOCK_ROW.iter_unpack(table):
            size, raw, records = size + length, raw + raw_length, records + n
    else:
        size, raw, records = np.add.reduce(np.frombuffer(table, "<i8").reshape(-1, 4)[:, 1:], axis=0).tolist()
    return Totals(
        totals.blocks + count,
        totals.bytes + size,
        totals.raw_bytes + raw,
        totals.records + records,
        crc32c(table, totals.digest),
    )


def put_batch(rows: np.ndarray, payload: Buffer) -> pa.RecordBatch:
    """A push batch of `rows` whose payloads lie back to back in `payload`, which is not copied."""
    return pa.record_batch([*_table_arrays(rows), payload_array(rows["length"], payload)], schema=PUT_SCHEMA)


def get_batch(
    schema: pa.Schema, maps: np.ndarray, attempts: np.ndarray, rows: np.ndarray, payload: Buffer
) -> pa.RecordBatch:
    """A pull batch; `maps` and `attempts` are int64 arrays as long as `rows`."""
    arrays = [
        _primitive(maps, pa.int64()),
        _primitive(attempts, pa.int64()),
        *_table_arrays(rows),
        payload_array(rows["length"], payload),
    ]
    return pa.record_batch(arrays, schema=schema)


def payload_array(lengths: np.ndarray, payload: Buffer) -> pa.Array:
    """A large_binary array over `payload`, which is referenced, not copied."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(payload)])


def parse_batch(batch: pa.RecordBatch, schema: pa.Schema) -> BlockBatch:
    """The blocks of a batch that came off the wire.

    Raises InvalidArgument when it does not have `schema` (metadata aside), holds nulls, its columns contradict each
    other, or it is above MAX_BATCH_BYTES or MAX_SUM: whoever sent it speaks something else.
    """
    check_schema(batch.schema, schema)
    try:
        # Lengths and offsets come from the peer. Before anything looks into a buffer, even to count nulls, Arrow checks
        # them against the buffers' real sizes.
        batch.validate(full=True)
    except pa.ArrowException as error:
        raise InvalidArgument(f"malformed block batch: {error}", remedy="send valid Arrow record batches") from None
    columns = batch.columns
    for column, name in zip(columns, schema.names, strict=True):
        if column.null_count:
            raise InvalidArgument(f"null in block column {name}", remedy="every field of a block has a value")
    *ids, partition, checksum, raw_length, records, payload = columns
    rows = np.empty(batch.num_rows, BLOCK_ROW)
    for name, column in zip(TABLE_FIELDS, (partition, checksum, raw_length, records), strict=True):
        rows[name] = _values(column, BLOCK_ROW[name])
    if not len(rows):
        return BlockBatch(rows, memoryview(b""))
    _, offset_buffer, data = payload.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64, len(rows) + 1, payload.offset * 8)
    rows["length"] = offsets[1:] - offsets[:-1]
    _check_rows(rows, MAX_BATCH_BYTES)
    whole = memoryview(data)[int(offsets[0]) : int(offsets[-1])] if data is not None else memoryview(b"")
    return BlockBatch(rows, whole, _outputs(*ids) if ids else ())


def _outputs(maps: pa.Array, attempts: pa.Array) -> list[MapAttempt]:
    """Row by row. Most batches have many rows of few outputs."""
    map_ids, numbers = (_values(column, np.dtype("<i8")) for column in (maps, attempts))
    changes = np.flatnonzero((map_ids[1:] != map_ids[:-1]) | (numbers[1:] != numbers[:-1])) + 1
    starts = [0, *changes.tolist()]
    outputs: list[MapAttempt] = []
    for start, end in zip(starts, [*starts[1:], len(map_ids)], strict=True):
        outputs += [MapAttempt(int(map_ids[start]), int(numbers[start]))] * (end - start)
    return outputs


def parse_table(data: bytes, most_bytes: int) -> np.ndarray:
    """The block table that a peer sent as bytes, dtype BLOCK_ROW, of payloads of at most `most_bytes` in all.

    Raises InvalidArgument when it is none.
    """
    if len(data) % BLOCK_ROW.itemsize:
        raise InvalidArgument(
            f"a block table of {len(data)} bytes", remedy=f"send rows of {BLOCK_ROW.itemsize} bytes (docs/protocol.md)"
        )
    rows = np.frombuffer(data, BLOCK_ROW)
    if (rows["length"] < 0).any():
        raise InvalidArgument("a block of negative length", remedy="send the blocks' lengths")
    _check_rows(rows, most_bytes)
    return rows


def check_schema(schema: pa.Schema, expected: pa.Schema) -> None:
    """Raises InvalidArgument unless `schema` is `expected`, metadata aside."""
    if schema.equals(expected, check_metadata=False):
        return
    try:
        columns = ", ".join(f"{field.name}:{field.type}" for field in schema)
    except UnicodeDecodeError:  # names are bytes that the peer chose
        columns = "names that are not UTF-8"
    raise InvalidArgument(
        f"a block batch has the columns {columns}",
        remedy=f"send {', '.join(f'{f.name}:{f.type}' for f in expected)} (docs/protocol.md)",
    )


def _check_rows(rows: np.ndarray, most_bytes: int) -> None:
    # No sum over a stream may leave 64 bits, whatever a peer says of its blocks.
    size: float
    raw: float
    records: float
    if len(rows) <= FEW_ROWS:
        contradicts = False
        size = raw = records = 0
        for _, _, length, raw_length, n in PACKED_BLOCK_ROW.iter_unpack(rows.tobytes()):
            contradicts |= raw_length < length or n < 0
            size, raw, records = size + length, raw + raw_length, records + n
    else:
        contradicts = bool((rows["raw_length"] < rows["length"]).any() or (rows["records"] < 0).any())
        size, raw, records = (float(rows[name].sum(dtype=np.float64)) for name in ("length", "raw_length", "records"))
    if contradicts:
        raise InvalidArgument(
            "a block's raw_length is below its length, or its record count is negative",
            remedy="send blocks that do not shrink uncompressed, with raw_length == length",
        )
    if size > most_bytes:
        raise InvalidArgument(
            f"{size:.0f} payload bytes at once",
            remedy=f"send smaller batches, and split blocks of more than {most_bytes} bytes",
        )
    for name, amount in (("raw_length", raw), ("records", records)):
        if amount > MAX_SUM:
            raise InvalidArgument(f"the {name} of a batch add up to more than {MAX_SUM}", remedy="count again")


def _table_arrays(rows: np.ndarray) -> list[pa.Array]:
    return [_primitive(rows[name], PUT_SCHEMA.field(name).type) for name in TABLE_FIELDS]


def _primitive(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    """An Arrow array over a numpy array. `pa.array` would do, but imports pandas when that is installed: seconds."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _values(column: pa.Array, kind: np.dtype) -> np.ndarray:
    """A numpy view of a primitive column without nulls; not `to_numpy`, for the same reason."""
    _, data = column.buffers()
    if data is None:
        return np.empty(0, kind)
    return np.frombuffer(data, kind, len(column), column.offset * kind.itemsize)
