"""Several batches as one, whatever their dictionaries hold, and that one as batches of the schema again.

Arrow joins dictionary columns if it can unify their dictionaries: not when all values together are more than an index
can number, when a value is null, or of a nested type. Such columns are joined with wider indexes (`joined`), and leave
as batches whose dictionaries fit the schema's (`fitted`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shuffle_api.columnar.arrays import fixed_width, nulls, taken, with_columns
from shuffle_api.errors import InvalidArgument

_UNJOINED = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


def joined(batches: list[Any]) -> Any:
    """Batches of one schema as one, in which dictionary columns may have wider indexes.

    :raises InvalidArgument: a column is more than its type can hold, or has dictionaries within that cannot be joined.
    """
    if len(batches) == 1:
        return batches[0]
    first = batches[0].schema
    if not len(first):
        return with_columns([], first, sum(batch.num_rows for batch in batches))
    try:
        return pa.concat_batches(batches)
    except _UNJOINED:
        columns = [_joined(field.name, [batch.column(at) for batch in batches]) for at, field in enumerate(first)]
    fields = [field.with_type(column.type) for field, column in zip(first, columns, strict=True)]
    return with_columns(columns, pa.schema(fields, first.metadata), len(columns[0]))


def fitted(batch: Any, schema: Any) -> Iterator[Any]:
    """The rows of a batch that was joined, in order, as batches of `schema`: mostly one."""
    if batch.schema.equals(schema):
        yield batch
        return
    columns = [_narrowed(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    if all(column is not None for column in columns):
        yield with_columns(columns, schema, batch.num_rows)
        return
    half = batch.num_rows // 2  # a single row always fits
    yield from fitted(batch.slice(0, half), schema)
    yield from fitted(batch.slice(half), schema)


def copied(batch: Any) -> Any:
    """A batch that shares no memory with this one, except for dictionaries."""
    return pa.concat_batches([batch]) if batch.num_columns else batch


def holds_dictionary(kind: Any) -> bool:
    """Whether values of the type, or values within them, are numbers of a dictionary."""
    if pa.types.is_dictionary(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return holds_dictionary(kind.storage_type)
    return any(holds_dictionary(kind.field(number).type) for number in range(kind.num_fields))


def used(column: Any) -> Any:
    """A dictionary column with the values it uses, in the order they had."""
    kind = column.type.index_type
    sign = "u" if pa.types.is_unsigned_integer(kind) else "i"
    dtype = np.dtype(f"<{sign}{kind.bit_width // 8}")
    valid = column.indices.drop_null()
    numbers = np.unique(fixed_width(valid, dtype.str))
    values = taken(
        with_columns([column.dictionary], pa.schema([("v", column.type.value_type)]), 0), numbers.astype(np.int64)
    )
    old = fixed_width(column.indices, dtype.str)
    new = np.minimum(np.searchsorted(numbers, old), max(0, len(numbers) - 1)).astype(dtype)
    absent = nulls(column.indices)
    validity = None if absent is None else pa.py_buffer(np.packbits(~absent, bitorder="little"))
    indices = pa.Array.from_buffers(kind, len(column), [validity, pa.py_buffer(new)])
    return pa.DictionaryArray.from_arrays(indices, values.column(0), ordered=column.type.ordered)


def _joined(name: str, columns: list[Any]) -> Any:
    try:
        if pa.types.is_dictionary(columns[0].type):
            return _joined_dictionaries(columns)
        return pa.concat_arrays(columns)
    except _UNJOINED as error:
        raise InvalidArgument(
            f"column {name!r} of {len(columns)} batches cannot be joined: {error}",
            remedy="cast it before it is written: texts to large ones, dictionaries within other types to their values",
        ) from error


def _joined_dictionaries(columns: list[Any]) -> Any:
    """One dictionary out of all, with indexes that number any of it."""
    dictionaries: list[Any] = []
    numbers, start = [], 0
    for column in columns:
        if not dictionaries or not dictionaries[-1].equals(column.dictionary):
            start += len(dictionaries[-1]) if dictionaries else 0
            dictionaries.append(column.dictionary)
        numbers.append(pc.add(column.indices.cast(pa.int64()), start))
    values, indices = pa.concat_arrays(dictionaries), pa.concat_arrays(numbers)
    try:
        unified = values.dictionary_encode()  # in which a null value is a null index
    except pa.ArrowNotImplementedError:
        pass  # nested values may be there more than once
    else:
        values, indices = unified.dictionary, pc.take(unified.indices, indices)
    return pa.DictionaryArray.from_arrays(indices, values, ordered=columns[0].type.ordered)


def _narrowed(column: Any, kind: Any) -> Any:
    """The column with the type it had before it was joined; None if it uses more values than that can number."""
    if column.type == kind:
        return column
    column = used(column)
    signed = not pa.types.is_unsigned_integer(kind.index_type)
    if len(column.dictionary) > 1 << (kind.index_type.bit_width - signed):
        return None
    return pa.DictionaryArray.from_arrays(column.indices.cast(kind.index_type), column.dictionary, ordered=kind.ordered)
