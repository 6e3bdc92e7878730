"""Arrow batches of any schema, for hypothesis."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import assume
from hypothesis import strategies as st

DAYS = st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1))
INTEGERS = {
    pa.int8(): (-(2**7), 2**7 - 1),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.int64(): (-(2**63), 2**63 - 1),
    pa.uint8(): (0, 2**8 - 1),
    pa.uint16(): (0, 2**16 - 1),
    pa.uint32(): (0, 2**32 - 1),
    pa.uint64(): (0, 2**64 - 1),
}
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    **{kind: st.integers(*bounds) for kind, bounds in INTEGERS.items()},
    pa.bool_(): st.booleans(),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(max_size=40),
    pa.large_string(): st.text(max_size=10),
    pa.binary(): st.binary(max_size=40),
    pa.binary(4): st.binary(min_size=4, max_size=4),
    pa.date32(): DAYS,
    pa.timestamp("us"): st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1)),
    pa.time64("us"): st.times(),
    pa.decimal128(12, 3): st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3)),
    pa.decimal128(30, 0): st.integers(-(10**30) + 1, 10**30 - 1).map(Decimal),
}
PLAIN_KINDS = st.sampled_from(list(PLAIN))


def kinds(depth: int = 2) -> st.SearchStrategy[Any]:
    """Types of columns, nested ones too."""
    if depth == 0:
        return PLAIN_KINDS
    inner = kinds(depth - 1)
    return st.one_of(
        PLAIN_KINDS,
        st.just(pa.null()),
        st.sampled_from([pa.int8(), pa.int32()]).map(lambda index: pa.dictionary(index, pa.string())),
        inner.map(pa.list_),
        inner.map(lambda kind: pa.list_(kind, 2)),
        st.lists(inner, max_size=3).map(lambda fields: pa.struct([(f"f{i}", kind) for i, kind in enumerate(fields)])),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
    )


def values(kind: Any) -> st.SearchStrategy[Any]:
    """A value of the type, or None."""
    return st.none() | _present(kind)


def _present(kind: Any) -> st.SearchStrategy[Any]:
    if kind in PLAIN:
        return PLAIN[kind]
    if pa.types.is_null(kind):
        return st.none()
    if pa.types.is_dictionary(kind):
        return st.sampled_from(["a", "bb", "", "ccc"])
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: values(field.type) for field in kind.fields})
    if pa.types.is_map(kind):
        return st.dictionaries(st.text(max_size=3), values(kind.item_type), max_size=3).map(lambda d: list(d.items()))
    if pa.types.is_fixed_size_list(kind):
        return st.lists(values(kind.value_type), min_size=kind.list_size, max_size=kind.list_size)
    return st.lists(values(kind.value_type), max_size=3)


@st.composite
def batches(draw: st.DrawFn, kind: st.SearchStrategy[Any] | None = None, most: int = 4) -> list[Any]:
    """Some batches of one schema; perhaps without rows or columns, perhaps slices of larger ones."""
    types = draw(st.lists(kinds() if kind is None else kind, max_size=3))
    schema = pa.schema([pa.field(f"c{i}", kind) for i, kind in enumerate(types)])
    return [draw(_batch(schema)) for _ in range(draw(st.integers(1, most)))]


@st.composite
def _batch(draw: st.DrawFn, schema: Any) -> Any:
    rows = draw(st.integers(0, 8))
    columns = [pa.array(draw(st.lists(values(f.type), min_size=rows, max_size=rows)), f.type) for f in schema]
    assume(all(map(_is_valid, columns)))
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.nulls(rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=schema).slice(draw(st.integers(0, rows)))


def _is_valid(column: Any) -> bool:
    """Arrow itself makes arrays that it calls invalid: of a null struct with a dictionary that is empty."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def rows_of(batch: Any) -> list[str]:
    """The rows of a batch as texts that can be compared and counted: NaN equals NaN, 0.0 is not -0.0."""
    if not batch.num_columns:
        return ["()"] * int(batch.num_rows)
    return [repr(row) for row in batch.to_pylist()]


def assigned(seed: int, rows: int, partitions: int) -> np.ndarray[Any, Any]:
    """A partition for each row, at random."""
    return np.random.default_rng(seed).integers(0, partitions, rows)
