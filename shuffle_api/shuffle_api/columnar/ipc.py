"""A RecordBatch as the payload of a block of content `arrow`, and back: one complete Arrow IPC stream per block.

So a block can be read by itself, by anything that reads Arrow. Its schema costs some hundred bytes; blocks of
hundreds of kilobytes are what the writer aims at.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from shuffle_api.buffer import Buffer
from shuffle_api.columnar.arrays import with_columns
from shuffle_api.columnar.joining import copied, holds_dictionary, used
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


def owned(batch: Any) -> Any:
    """A batch of which nothing lies in memory that the caller may change: all of it is a copy."""
    if not any(map(holds_dictionary, batch.schema.types)):
        return copied(batch)
    with pa.ipc.open_stream(encode(batch)) as stream:
        copy = stream.read_next_batch()
    columns = [_typed(column, kind) for column, kind in zip(copy.columns, batch.schema.types, strict=True)]
    return with_columns(columns, batch.schema, batch.num_rows)


def _typed(column: Any, kind: Any) -> Any:
    """A column of an extension type that is not registered has come as its storage."""
    return column if column.type == kind else pa.ExtensionArray.from_storage(kind, column)


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
    columns = [used(column) if _wasteful(column) else column for column in batch.columns]
    return with_columns(columns, batch.schema, batch.num_rows)


def _wasteful(column: Any) -> bool:
    return pa.types.is_dictionary(column.type) and len(column.dictionary) > len(column)
