"""Where rows go: equal keys together, ranges in order, turns in turn; and bounds out of a sample."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffle_api.columnar import (
    HashPartitioner,
    Order,
    Partitioner,
    RangePartitioner,
    RoundRobinPartitioner,
    hash_rows,
    sample_bounds,
)
from shuffle_api.columnar.order import Direction
from shuffle_api.errors import InvalidArgument
from tests.shuffle_api.columnar.strategies import PLAIN_KINDS, batches

BATCH = pa.record_batch({"k": [5, 1, None, 9, 5], "t": ["e", "a", "n", "i", "e"]})


def test_hash_is_that_of_the_rows_modulo_the_partitions() -> None:
    rows = pa.record_batch({"k": np.arange(1000)})
    for partitions in (1, 2, 3, 7, 64, 1000):
        expected = [hashed % partitions for hashed in hash_rows(rows, ["k"]).tolist()]
        assert HashPartitioner("k").partitions_of(rows, partitions).tolist() == expected


def test_hash_spreads_consecutive_keys_evenly() -> None:
    counts = Counter(HashPartitioner("k").partitions_of(pa.record_batch({"k": np.arange(64_000)}), 64).tolist())
    assert len(counts) == 64
    assert 850 < min(counts.values()) <= max(counts.values()) < 1150


def test_hash_of_no_columns_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        HashPartitioner()


def test_turns_go_on_from_batch_to_batch() -> None:
    partitioner = RoundRobinPartitioner(start=2)
    answers = [partitioner.partitions_of(BATCH, 3).tolist() for _ in range(2)]
    assert answers == [[2, 0, 1, 2, 0], [1, 2, 0, 1, 2]]


@pytest.mark.parametrize(
    ("order", "bounds", "expected"),
    [
        (Order.by("k"), {"k": [1, 5]}, [1, 0, 2, 2, 1]),
        (Order.by(("k", "descending")), {"k": [5, 1]}, [0, 1, 2, 0, 0]),
        (Order.by("t"), {"t": ["e"]}, [0, 0, 1, 1, 0]),
        (Order.by("k", "t"), {"k": [5, 5], "t": ["d", "e"]}, [1, 0, 2, 2, 1]),
        (Order.by("k"), {"k": pa.array([], pa.int64())}, [0] * 5),
        (Order.by("k"), {"k": pa.array([5, None], pa.int64())}, [0, 0, 1, 1, 0]),
    ],
)
def test_a_row_goes_before_the_first_bound_that_is_not_below_it(
    order: Order, bounds: dict[str, Any], expected: list[int]
) -> None:
    partitioner = RangePartitioner(order, pa.record_batch(bounds))
    assert partitioner.partitions_of(BATCH, 3).tolist() == expected


def test_nan_and_null_are_above_all_numbers_and_zeros_are_equal() -> None:
    rows = pa.record_batch({"x": pa.array([float("nan"), -0.0, 0.0, None, float("inf")])})
    for bounds in ([0.0, float("inf")], [-0.0, float("inf")]):
        partitioner = RangePartitioner(Order.by("x"), pa.record_batch({"x": bounds}))
        assert partitioner.partitions_of(rows, 3).tolist() == [2, 0, 0, 2, 1]


@settings(max_examples=150, deadline=None)
@given(batches(PLAIN_KINDS, most=3), st.data())
def test_ranges_are_what_sorting_says(many: list[Any], data: st.DataObject) -> None:
    names = many[0].schema.names
    if not names:
        return
    directions: st.SearchStrategy[Direction] = st.sampled_from(["ascending", "descending"])
    order = Order(tuple((name, data.draw(directions)) for name in data.draw(st.permutations(names))))
    partitioner = RangePartitioner(order, sample_bounds(many, order, 4, seed=1))
    keys = order.keys_of(pa.concat_batches(many))
    partitions = partitioner.partitions_of(pa.concat_batches(many), 4)
    in_order = partitions[order.sorted_rows(keys)]
    assert (np.diff(in_order) >= 0).all()
    # Rows with equal keys are in one partition: reversed, a stable sort must give the same partitions.
    backwards = np.arange(keys.num_rows)[::-1].copy()
    again = order.sorted_rows(keys.take(pa.array(backwards)))
    assert partitions[backwards][again].tolist() == in_order.tolist()


def test_bounds_out_of_a_sample_cut_into_parts_of_about_the_same_size() -> None:
    chance = np.random.default_rng(3)
    many = [pa.record_batch({"k": chance.normal(size=20_000)}) for _ in range(5)]
    bounds = sample_bounds(many, Order.by("k"), 8, seed=4)
    assert bounds.num_rows == 7
    partitioner = RangePartitioner(Order.by("k"), bounds)
    sizes = np.bincount(np.concatenate([partitioner.partitions_of(batch, 8) for batch in many]), minlength=8)
    assert 9_000 < sizes.min() <= sizes.max() < 16_500
    assert sample_bounds(many, Order.by("k"), 8, seed=4).equals(bounds)


def test_a_frequent_key_makes_fewer_bounds() -> None:
    keys = pa.record_batch({"k": [7] * 1000 + list(range(20))})
    bounds = sample_bounds([keys], Order.by("k"), 10)
    assert len(set(bounds["k"].to_pylist())) == bounds.num_rows < 9


def test_bounds_of_no_rows_and_of_no_batches() -> None:
    order = Order.by("k")
    assert sample_bounds([BATCH.slice(0, 0)], order, 4).num_rows == 0
    with pytest.raises(InvalidArgument, match="no batches"):
        sample_bounds([], order, 4)
    with pytest.raises(InvalidArgument, match="0 partitions"):
        sample_bounds([BATCH], order, 0)


def test_bounds_that_do_not_fit_are_refused() -> None:
    order = Order.by("k")
    with pytest.raises(InvalidArgument, match="not sorted"):
        RangePartitioner(order, pa.record_batch({"k": [5, 1]}))
    with pytest.raises(InvalidArgument, match="no column 'k'"):
        RangePartitioner(order, pa.record_batch({"t": ["x"]}))
    three = RangePartitioner(order, pa.record_batch({"k": [1, 2, 3]}))
    with pytest.raises(InvalidArgument, match="3 bounds for 3 partitions"):
        three.partitions_of(BATCH, 3)
    with pytest.raises(InvalidArgument, match="cast one"):
        three.partitions_of(pa.record_batch({"k": [1.5]}), 4)


@pytest.mark.parametrize(
    "partitioner",
    [
        HashPartitioner("k", "t"),
        RoundRobinPartitioner(1),
        RangePartitioner(Order.by("k"), pa.record_batch({"k": [1, 5]})),
    ],
    ids=["hash", "round robin", "range"],
)
def test_partitioners_travel_to_tasks(partitioner: Partitioner) -> None:
    assert isinstance(partitioner, Partitioner)
    there = pickle.loads(pickle.dumps(partitioner))
    assert there.partitions_of(BATCH, 3).tolist() == partitioner.partitions_of(BATCH, 3).tolist()


def test_orders_that_are_none_are_refused() -> None:
    for keys in ((), ("k", "k"), (("k", "up"),)):
        with pytest.raises(InvalidArgument):
            Order.by(*keys)
    nested = pa.record_batch({"k": [[1]]})
    with pytest.raises(InvalidArgument, match="has no order"):
        Order.by("k").keys_of(nested)


@pytest.mark.parametrize("direction", ["ascending", "descending"])
def test_half_floats_and_dictionaries_are_ordered_by_their_values(direction: Direction) -> None:
    half = pa.array(np.array([2.5, -1, np.nan, 0], np.float16))
    words = pa.array(["c", "a", None, "b"]).dictionary_encode()
    expected = [1, 3, 0, 2] if direction == "ascending" else [0, 3, 1, 2]
    for column in (half, words):
        order = Order.by(("k", direction))
        assert order.sorted_rows(order.keys_of(pa.record_batch({"k": column}))).tolist() == expected


def test_a_dictionary_of_structs_has_no_order_and_the_error_names_the_column() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([{"a": 1}]))
    with pytest.raises(InvalidArgument, match="column 'k' of type struct<a: int64> has no order"):
        Order.by("k").keys_of(pa.record_batch({"k": column}))
