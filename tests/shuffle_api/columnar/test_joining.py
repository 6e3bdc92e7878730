"""Dictionaries that Arrow does not unify, and memory that the caller changes: rows arrive as they were given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shuffle_api import MapAttempt, ShuffleHandle
from shuffle_api.columnar import HashPartitioner, Order, RoundRobinPartitioner
from shuffle_api.columnar.joining import fitted, joined
from shuffle_api.errors import InvalidArgument
from shuffle_api.sorting.batches import SortedBatchWriter, merged_batches
from shuffle_api.testing import MemoryShuffle


def words(start: int, index: Any = None) -> Any:
    indices = pa.array(range(100), index or pa.int8())
    return pa.DictionaryArray.from_arrays(indices, pa.array([f"w{start + number:04}" for number in range(100)]))


def with_null(start: int) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2], pa.int8()), pa.array([f"a{start}", None, "b"]))


def of_structs(start: int) -> Any:
    values = pa.array([{"a": start + number} for number in range(3)] + [None])
    return pa.DictionaryArray.from_arrays(pa.array([2, 0, 1, 3, None], pa.uint8()), values)


def in_struct(start: int) -> Any:
    return pa.StructArray.from_arrays([words(start, pa.int32())], ["d"])


COLUMNS: list[Callable[[int], Any]] = [words, with_null, of_structs, in_struct]


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("partitions", [1, 3])
def test_dictionaries_that_arrow_does_not_unify_travel(column: Callable[[int], Any], partitions: int) -> None:
    given: list[Any] = []
    with MemoryShuffle({"content": "arrow"}) as plugin, plugin.master("dictionaries") as master:
        handle = master.register_shuffle(partitions=partitions, maps=1)
        with plugin.writer(handle, MapAttempt(0, 0)) as writer:
            for start in (0, 100, 200):
                batch = pa.record_batch({"k": column(start)})
                writer.write_batch(batch, RoundRobinPartitioner())
                given.append(batch)
            writer.commit()
        with plugin.reader(handle, range(partitions)) as reader:
            got = [batch for _, batch in reader.read_batches()]
    assert all(batch.schema.equals(given[0].schema) for batch in got)
    rows = [repr(row) for batch in given for row in batch.to_pylist()]
    assert sorted(repr(row) for batch in got for row in batch.to_pylist()) == sorted(rows)


@pytest.mark.parametrize("memory", [1 << 10, 64 << 20])
def test_sorted_and_merged_they_keep_their_type(memory: int) -> None:
    order = Order.by("n")
    with MemoryShuffle({"content": "arrow"}) as plugin, plugin.master("sorted-dictionaries") as master:
        handle = master.register_shuffle(partitions=1, maps=2)
        for map in range(2):
            with SortedBatchWriter(plugin.writer(handle, MapAttempt(map, 0)), handle, order, memory=memory) as writer:
                for start in (0, 100, 200):
                    numbers = pa.array(np.arange(100) * 7919 % 100 * 2 + map)
                    columns = {"n": numbers, "w": words(start + 1000 * map), "s": pa.array([f"{start}"] * 100)}
                    writer.write_batch(pa.record_batch(columns), HashPartitioner("n"))
                writer.commit()
        with plugin.reader(handle, range(1)) as reader:
            got = [batch for _, batch in merged_batches(reader, handle, order)]
    table = pa.Table.from_batches(got)
    assert table.num_rows == 600
    assert table["n"].to_pylist() == sorted(table["n"].to_pylist())
    assert all(batch["w"].type == pa.dictionary(pa.int8(), pa.string()) for batch in got)
    for row in table.to_pylist():
        number = next(at for at in range(100) if at * 7919 % 100 * 2 + row["n"] % 2 == row["n"])
        assert row["w"] == f"w{int(row['s']) + 1000 * (row['n'] % 2) + number:04}"


def test_joined_with_wider_indexes_it_fits_again_in_few_parts() -> None:
    batches = [pa.record_batch({"k": words(start)}) for start in range(0, 1000, 100)]
    whole = joined(batches)
    assert whole.num_rows == 1000
    parts = list(fitted(whole, batches[0].schema))
    assert pa.Table.from_batches(parts)["k"].to_pylist() == [f"w{number:04}" for number in range(1000)]
    assert len(parts) <= 16


def test_a_column_that_cannot_be_joined_is_named() -> None:
    column = pa.StructArray.from_arrays([with_null(0)], ["d"])
    other = pa.StructArray.from_arrays([with_null(1)], ["d"])
    with pytest.raises(InvalidArgument, match="column 'odd' of 2 batches cannot be joined"):
        joined([pa.record_batch({"odd": column}), pa.record_batch({"odd": other})])


def _written(write: Callable[[Any, ShuffleHandle], Any]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = defaultdict(list)
    with MemoryShuffle({"content": "arrow"}) as plugin, plugin.master("changed") as master:
        handle = master.register_shuffle(partitions=2, maps=1)
        numbers, codes, values = np.arange(6), np.array([0, 1, 0, 1, 0, 1], np.int8), np.arange(2) + 10
        dictionary = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(values))
        with write(plugin.writer(handle, MapAttempt(0, 0)), handle) as writer:
            columns = {"n": pa.array(numbers), "d": dictionary}
            writer.write_batch(pa.record_batch(columns), RoundRobinPartitioner())
            numbers[:], codes[:], values[:] = -1, 0, -1
            writer.commit()
        with plugin.reader(handle, range(2)) as reader:
            for partition, batch in reader.read_batches():
                found[partition] += map(repr, batch.to_pylist())
    return found


@pytest.mark.parametrize("write", [lambda writer, _: writer, lambda w, h: SortedBatchWriter(w, h, Order.by("n"))])
def test_what_was_given_may_be_changed_when_the_call_has_returned(write: Callable[[Any, ShuffleHandle], Any]) -> None:
    expected = [[repr({"n": n, "d": 10 + n % 2}) for n in range(partition, 6, 2)] for partition in range(2)]
    assert _written(write) == dict(enumerate(expected))
