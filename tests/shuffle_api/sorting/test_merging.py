"""The k-way merge of sorted batches against sorting everything at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffle_api.columnar import Order
from shuffle_api.columnar.arrays import taken
from shuffle_api.columnar.order import Direction
from shuffle_api.sorting import merging
from shuffle_api.sorting.merging import merge_batches
from tests.arrow_memory import own_arrow_memory
from tests.shuffle_api.columnar.strategies import PLAIN_KINDS, batches, rows_of


def in_order(batch: Any, order: Order) -> Any:
    return taken(batch, order.sorted_rows(order.keys_of(batch)))


def cut(batch: Any, size: int) -> Iterator[Any]:
    return (batch.slice(at, size) for at in range(0, batch.num_rows, size))


@settings(max_examples=200, deadline=None)
@given(batches(PLAIN_KINDS, most=6), st.integers(1, 4), st.integers(1, 6), st.data())
def test_merging_is_stable_sorting(many: list[Any], head: int, size: int, data: st.DataObject) -> None:
    names = many[0].schema.names
    if not names:
        return
    directions: st.SearchStrategy[Direction] = st.sampled_from(["ascending", "descending"])
    order = Order(tuple((name, data.draw(directions)) for name in data.draw(st.permutations(names))[:2]))
    numbered = [
        batch.append_column("place", pa.array([f"{run} {row}" for row in range(batch.num_rows)], pa.string()))
        for run, batch in enumerate(many)
    ]
    runs = [in_order(batch, order) for batch in numbered]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "HEAD_ROWS", head)
        got = list(merge_batches([cut(run, size) for run in runs], order))
    expected = in_order(pa.concat_batches(runs), order)
    assert [row for batch in got for row in rows_of(batch)] == rows_of(expected)


def test_runs_that_do_not_overlap_are_passed_on_as_they_are() -> None:
    given = [[pa.record_batch({"k": np.arange(5_000) + 5_000 * n})] for n in range(4)]
    got = list(merge_batches([iter(run) for run in given], Order.by("k")))
    assert np.concatenate([batch["k"] for batch in got]).tolist() == list(range(20_000))


def test_memory_stays_with_a_few_batches_per_run() -> None:
    rows, runs = 400_000, 4

    def run(number: int) -> Iterator[Any]:
        for start in range(0, rows, 5_000):
            yield pa.record_batch({"k": np.arange(start, start + 5_000) * runs + number})

    last = -1
    with own_arrow_memory() as memory:
        for batch in merge_batches([run(n) for n in range(runs)], Order.by("k")):
            assert batch["k"][0].as_py() == last + 1
            last = batch["k"][-1].as_py()
            memory.look()
    assert last == rows * runs - 1
    assert 0 < memory.most < rows * runs  # an eighth of all bytes; Arrow counts joined and taken arrays, not numpy's


def test_rows_that_are_large_are_held_by_their_bytes_and_copied_a_few_times() -> None:
    rows, size = 300, 256 << 10
    blob = pa.array([b"x" * size])
    allocated = 0

    def run(number: int) -> Iterator[Any]:
        return (pa.record_batch({"k": pa.array([2 * row + number]), "v": blob}) for row in range(rows))

    class Counting(Order):
        def sorted_rows(self, keys: Any) -> Any:
            nonlocal allocated
            allocated += keys.num_rows
            return super().sorted_rows(keys)

    keys = []
    with own_arrow_memory() as memory:
        for batch in merge_batches([run(0), run(1)], Counting.by("k")):
            keys += batch["k"].to_pylist()
            memory.look()
    assert keys == list(range(2 * rows))
    assert 0 < memory.most < 16 * size  # two heads of two rows, joined and taken
    assert allocated < 10 * len(keys)  # rows sorted, fences included: in proportion to those there are
