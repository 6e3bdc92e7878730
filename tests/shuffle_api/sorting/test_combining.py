"""The combiner of batches: one row per key, same schema, and a refusal for what it cannot do."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from shuffle_api.columnar import Order
from shuffle_api.errors import InvalidArgument
from shuffle_api.sorting.combining import Combiner, last_group

ORDER = Order.by("k")


def test_rows_with_equal_keys_become_one() -> None:
    batch = pa.record_batch(
        {
            "n": [1, 2, 3, 4],
            "k": ["a", "a", "b", None],
            "x": [0.5, 1.5, None, 4.0],
            "t": ["p", "q", "r", None],
            "ok": [True, False, True, True],
            "f": ["1", "2", "3", "4"],
        }
    )
    combiner = Combiner(n="sum", x="max", t="min", ok="all", f="last")
    combiner.check(batch.schema, ORDER)
    got = combiner.combine(batch, ORDER)
    assert got.schema == batch.schema
    assert got.to_pylist() == [
        {"n": 3, "k": "a", "x": 1.5, "t": "p", "ok": False, "f": "2"},
        {"n": 3, "k": "b", "x": None, "t": "r", "ok": True, "f": "3"},
        {"n": 4, "k": None, "x": 4.0, "t": None, "ok": True, "f": "4"},
    ]


def test_several_keys_and_names_that_look_like_results() -> None:
    batch = pa.record_batch({"v": [1, 2, 3], "v_sum": [7, 7, 8], "0": ["x", "x", "x"]})
    order = Order.by("v_sum", ("0", "descending"))
    combiner = Combiner(v="sum")
    combiner.check(batch.schema, order)
    assert combiner.combine(batch, order).to_pylist() == [
        {"v": 3, "v_sum": 7, "0": "x"},
        {"v": 3, "v_sum": 8, "0": "x"},
    ]


@pytest.mark.parametrize(
    ("columns", "functions", "says"),
    [
        ({"k": pa.string(), "n": pa.int64()}, {}, "every column is either"),
        ({"k": pa.string()}, {"n": "sum"}, "every column is either"),
        ({"k": pa.string(), "n": pa.int64()}, {"n": "sum", "k": "min"}, "every column is either"),
        ({"k": pa.string(), "n": pa.int32()}, {"n": "sum"}, "sum of column 'n' is of type int64"),
        ({"k": pa.string(), "n": pa.string()}, {"n": "sum"}, "cannot be combined"),
    ],
)
def test_what_cannot_be_combined_is_refused(columns: dict[str, Any], functions: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        Combiner(**functions).check(pa.schema(columns), ORDER)


def test_a_function_that_may_not_be_repeated_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="'mean'"):
        Combiner(n="mean")


@pytest.mark.parametrize(("keys", "expected"), [([1, 2, 2], 1), ([1, 2, 3], 2), ([5, 5], 0), ([1, None, None], 1)])
def test_where_the_last_group_begins(keys: list[int | None], expected: int) -> None:
    assert last_group(pa.record_batch({"k": pa.array(keys, pa.int64())}), ORDER) == expected
