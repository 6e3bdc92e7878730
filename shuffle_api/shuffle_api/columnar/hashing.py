"""The hash of rows by some of their columns: XXH64 with seed 42, column after column.

It is what Spark SQL's `xxhash64(columns)` computes (org.apache.spark.sql.catalyst.expressions.XxHash64), where Spark
has the type: so `pmod(xxhash64(k), n)` in Spark names the partition that `HashPartitioner` chooses. The rules:

- Each column's hash is seeded with the hash of the columns before; a null leaves that as it is.
- Booleans and integers of up to 32 bits are hashed as int32, all other integers as int64, and so is what of uint32
  exceeds int32. Likewise dates, times, timestamps and durations (as they are stored: in their unit) and decimals of up
  to 18 digits. Wider ones are bytes.
- Floats are hashed by their bits, with -0.0 as 0.0 and every NaN as one: keys that are equal meet.
- Texts and bytes are hashed as they are; those above 1024 bytes by their BLAKE2b digest (Spark differs there).
- A struct is hashed field by field. A dictionary's values count, not its indices.

Equal values of different types need not meet: cast the key columns of two sides of a join to one type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shuffle_api.columnar.arrays import bits, decoded, fixed_width, nulls, spans
from shuffle_api.columnar.xxh64 import U64, hash_bytes, hash_half_words, hash_words
from shuffle_api.errors import InvalidArgument

SEED = 42
_MOST_INT32 = np.uint32(2**31 - 1)

LONG_DIGITS = 18
"""Decimals of up to so many digits fit into int64."""


def hash_rows(batch: Any, columns: Sequence[str]) -> npt.NDArray[np.int64]:
    """The hash of each row by `columns`; shape [num_rows], signed as Spark's.

    :raises InvalidArgument: no such column, two of that name, or a type that is not hashed (lists, maps, unions).
    """
    hashes: U64 = np.broadcast_to(np.uint64(SEED), batch.num_rows)  # which takes no memory
    for name in columns:
        hashes = _column(key_column(batch, name), hashes, name)
    return hashes.view(np.int64)


def key_column(batch: Any, name: str) -> Any:
    """The one column of that name.

    :raises InvalidArgument: there is none, or more than one.
    """
    found = batch.schema.get_all_field_indices(name)
    if len(found) != 1:
        what = "no column" if not found else f"{len(found)} columns"
        raise InvalidArgument(
            f"the batch has {what} {name!r}", remedy=f"its columns are {', '.join(batch.schema.names) or 'none'}"
        )
    return batch.column(found[0])


def _column(column: Any, seeds: U64, name: str) -> U64:
    kind = column.type
    if pa.types.is_null(kind):
        return seeds
    if pa.types.is_struct(kind):
        return _kept(column, _fields(column, seeds, name), seeds)
    if pa.types.is_dictionary(kind):
        return _column(decoded(column), seeds, name)
    if isinstance(kind, pa.BaseExtensionType):
        return _column(column.storage, seeds, name)
    return _kept(column, _values(column, seeds, name), seeds)


def _fields(column: Any, seeds: U64, name: str) -> U64:
    for number in range(column.type.num_fields):
        seeds = _column(column.field(number), seeds, f"{name}.{column.type.field(number).name}")
    return seeds


def _kept(column: Any, hashes: U64, seeds: U64) -> U64:
    """The hashes, and the seeds where the column is null."""
    absent = nulls(column)
    return hashes if absent is None else np.where(absent, seeds, hashes)


def _values(column: Any, seeds: U64, name: str) -> U64:
    kind = column.type
    if pa.types.is_boolean(kind):
        return hash_half_words(bits(column).astype(np.uint32), seeds)
    if pa.types.is_floating(kind):
        return _floats(column, seeds)
    if pa.types.is_decimal(kind):
        return _decimals(column, seeds)
    if _is_bytes(kind):
        return hash_bytes(*spans(column), seeds)
    if pa.types.is_interval(kind):
        return hash_bytes(*spans(column.view(pa.binary(kind.bit_width // 8))), seeds)
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return _integers(column, seeds)
    raise InvalidArgument(
        f"column {name!r} of type {kind} cannot be hashed",
        remedy="partition by columns of numbers, texts, bytes, times, or structs of these",
    )


def _is_bytes(kind: Any) -> bool:
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
    )
    return any(test(kind) for test in tests)


def _integers(column: Any, seeds: U64) -> U64:
    sign = "u" if pa.types.is_unsigned_integer(column.type) else "i"
    width = column.type.bit_width // 8
    values = fixed_width(column, f"<{sign}{width}")
    if width == 8:
        return hash_words(values.view(np.uint64), seeds)
    hashes = hash_half_words(values.astype(np.int32).view(np.uint32), seeds)
    if (sign, width) == ("u", 4) and (large := values > _MOST_INT32).any():
        hashes[large] = hash_words(values[large].astype(np.uint64), seeds[large])
    return hashes


def _floats(column: Any, seeds: U64) -> U64:
    width = column.type.bit_width // 8
    values = fixed_width(column, f"<f{width}")
    if width == 2:
        values = values.astype(np.float32)
    values = np.where(values == 0, values.dtype.type(0), values)
    values[np.isnan(values)] = np.nan
    if values.dtype == np.float64:
        return hash_words(values.view(np.uint64), seeds)
    return hash_half_words(values.view(np.uint32), seeds)


def _decimals(column: Any, seeds: U64) -> U64:
    if column.type.precision > LONG_DIGITS:
        return hash_bytes(*spans(column), seeds)
    data, starts, _ = spans(column)
    words = column.type.byte_width // 8
    if not words:  # decimal32
        return hash_words(fixed_width(column, "<i4").astype(np.int64).view(np.uint64), seeds)
    if not len(data):
        return seeds
    first = int(starts[0]) // 8 if len(starts) else 0
    low = np.frombuffer(data[: len(data) // 8 * 8], "<u8")[first::words][: len(column)]
    return hash_words(low.astype(np.uint64), seeds)
