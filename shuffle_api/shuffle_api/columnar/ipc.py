"""A RecordBatch as the payload of a block of content `arrow`, and back: one complete Arrow IPC stream per block.

So a block can be read by itself, by anything that reads Arrow. Its schema costs some hundred bytes; blocks of
hundreds of kilobytes are what the writer aims at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from shuffle_api.buffer import Buffer
from shuffle_api.columnar.arrays import fixed_width, nulls, taken, with_columns
from shuffle_api.errors import BlockCorrupt

_OPTIONS = pa.ipc.IpcWriteOptions()
_END_BYTES = 8


def encode(batch: Any) -> pa.Buffer:
    """The payload of a block that holds the rows of `batch`."""
    batch = _compacted(batch)
    # A stream that grows would copy what it has several times. Without dictionaries there are three messages: schema,
    # batch, end.
    size = batch.schema.serialize().size + pa.ipc.get_record_batch_size(batch) + _END_BYTES
    try:
        return _written(batch, size)
    except (pa.ArrowException, OSError):
        counter = pa.MockOutputStream()
        _write(counter, batch)
        return _written(batch, counter.size())


def decode(payload: Buffer, records: int) -> Any:
    """The batch of a block; its columns are views of `payload` where that lies aligned in memory.

    :raises BlockCorrupt: no Arrow stream of one batch of `records` rows.
    """
    try:
        options = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)
        with pa.ipc.open_stream(pa.py_buffer(payload), options=options) as stream:
            batches = list(stream)
        for batch in batches:
            batch.validate()
    except (pa.ArrowException, OSError) as error:
        raise BlockCorrupt(f"a block of {memoryview(payload).nbytes} bytes is no Arrow stream: {error}") from None
    if len(batches) != 1 or batches[0].num_rows != records:
        raise BlockCorrupt(f"a block says {records} rows and holds {[batch.num_rows for batch in batches]}")
    return batches[0]


def _written(batch: Any, size: int) -> pa.Buffer:
    """The stream, in a buffer of `size` bytes. Raises what Arrow raises when that is too small."""
    payload = pa.allocate_buffer(size)
    sink = pa.FixedSizeBufferWriter(payload)
    _write(sink, batch)
    return payload.slice(0, sink.tell())


def _write(sink: Any, batch: Any) -> None:
    with pa.ipc.new_stream(sink, batch.schema, options=_OPTIONS) as stream:
        stream.write_batch(batch)


def _compacted(batch: Any) -> Any:
    """The batch with dictionaries that have no more values than it has rows: a slice still has the whole one."""
    if not any(map(pa.types.is_dictionary, batch.schema.types)) or not any(map(_wasteful, batch.columns)):
        return batch
    columns = [_used(column) if _wasteful(column) else column for column in batch.columns]
    return with_columns(columns, batch.schema, batch.num_rows)


def _wasteful(column: Any) -> bool:
    return pa.types.is_dictionary(column.type) and len(column.dictionary) > len(column)


def _used(column: Any) -> Any:
    """A dictionary column with the values it uses, in the order they had."""
    kind = column.type.index_type
    sign = "u" if pa.types.is_unsigned_integer(kind) else "i"
    dtype = np.dtype(f"<{sign}{kind.bit_width // 8}")
    valid = column.indices.drop_null()
    used = np.unique(fixed_width(valid, dtype.str))
    values = taken(
        with_columns([column.dictionary], pa.schema([("v", column.type.value_type)]), 0), used.astype(np.int64)
    )
    old = fixed_width(column.indices, dtype.str)
    new = np.minimum(np.searchsorted(used, old), max(0, len(used) - 1)).astype(dtype)
    absent = nulls(column.indices)
    validity = None if absent is None else pa.py_buffer(np.packbits(~absent, bitorder="little"))
    indices = pa.Array.from_buffers(kind, len(column), [validity, pa.py_buffer(new)])
    return pa.DictionaryArray.from_arrays(indices, values.column(0), ordered=column.type.ordered)
