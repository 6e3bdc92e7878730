"""Shuffles of tables by tasks of engines: what `flight_shuffle.ray` does without Ray."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench.harness.server import ServerProcess
from flight_shuffle._tables import Aggregated, Grouped, Hashed, Shuffled, Sorted, TableShuffle, Way
from flight_shuffle._tasks import ShuffleSession
from shuffle_api import ShuffleMaster
from shuffle_api.columnar import Order, sample_bounds
from shuffle_api.errors import InvalidArgument

MAPS, ROWS, PARTITIONS = 3, 40, 4
TABLES = [
    pa.table(
        {
            "k": [None if n % 11 == 0 else f"k{n % 7}" for n in range(first, first + ROWS)],
            "x": [math.nan if n % 13 == 0 else n % 17 / 2 for n in range(first, first + ROWS)],
            "n": range(first, first + ROWS),
        }
    )
    for first in range(0, MAPS * ROWS, ROWS)
]
ALL = pa.concat_tables(TABLES)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShuffleMaster]:
    root: Path = tmp_path_factory.mktemp("server")
    with ServerProcess(root / "data", root / "log") as process:
        with ShuffleSession(process.control, "remote", {}, "tables", "test") as session:
            yield session.master


def shuffled(master: ShuffleMaster, way: Way, tables: list[Any] = TABLES) -> list[list[Any]]:
    """The tables of each partition; tasks get what they need pickled, and every second one runs twice."""
    handle = master.register_shuffle(PARTITIONS, 1000)
    shuffle: TableShuffle = pickle.loads(pickle.dumps(TableShuffle(handle, "remote", (("content", "arrow"),), way)))
    for number, table in enumerate(tables):
        for _ in range(1 + number % 2):
            assert shuffle.write(table, number) == table.num_rows
    return [list(shuffle.read(partition, len(tables))) for partition in range(PARTITIONS)]


def numbers(parts: list[Any]) -> list[int]:
    return [n for part in parts for n in part["n"].to_pylist()]


def test_rows_with_equal_keys_meet(master: ShuffleMaster) -> None:
    parts = shuffled(master, Hashed(("k",)))
    assert sorted(n for part in parts for n in numbers(part)) == ALL["n"].to_pylist()
    keys = [{key for table in part for key in table["k"].to_pylist()} for part in parts]
    assert sum(map(len, keys)) == len(set(ALL["k"].to_pylist()))


def test_one_row_for_each_key(master: ShuffleMaster) -> None:
    parts = shuffled(master, Hashed(("k",), Aggregated(("k",), (("n", "sum"), ("x", "count")))))
    found = pa.concat_tables(table for part in parts for table in part).sort_by("k")
    assert found.to_pylist() == ALL.group_by("k").aggregate([("n", "sum"), ("x", "count")]).sort_by("k").to_pylist()


def spread(table: Any) -> Any:
    values = table["n"].to_pylist()
    return pa.table({"k": table["k"].slice(0, 1), "spread": [max(values) - min(values)], "rows": [len(values)]})


def test_groups_become_what_a_function_makes_of_them(master: ShuffleMaster) -> None:
    parts = shuffled(master, Hashed(("k",), Grouped(("k",), spread)))
    found = {row["k"]: row for part in parts for table in part for row in table.to_pylist()}
    groups: dict[str | None, list[int]] = {}
    for row in ALL.to_pylist():
        groups.setdefault(row["k"], []).append(row["n"])
    assert found == {k: {"k": k, "spread": max(v) - min(v), "rows": len(v)} for k, v in groups.items()}


@pytest.mark.parametrize("descending", [False, True])
def test_partitions_are_in_order(master: ShuffleMaster, descending: bool) -> None:
    order = Order((("x", "descending" if descending else "ascending"), ("n", "ascending")))
    bounds = sample_bounds((batch for table in TABLES for batch in table.to_batches()), order, PARTITIONS)
    parts = shuffled(master, Sorted(order, bounds))
    whole = ALL.combine_chunks().to_batches()[0]
    expected = whole.take(pa.array(order.sorted_rows(order.keys_of(whole))))
    assert [n for part in parts for n in numbers(part)] == expected["n"].to_pylist()
    assert sum(map(bool, parts)) > 1


def test_random_rows_are_the_same_for_a_seed(master: ShuffleMaster) -> None:
    first, again, other = (
        [n for part in shuffled(master, Shuffled(seed)) for n in numbers(part)] for seed in (7, 7, 8)
    )
    assert first == again
    assert sorted(first) == sorted(other) == ALL["n"].to_pylist()
    assert first != other


def test_partitions_without_rows_have_no_tables(master: ShuffleMaster) -> None:
    for way in (Hashed(("k",)), Hashed(("k",), Aggregated(("k",), (("n", "sum"),))), Shuffled(1)):
        assert shuffled(master, way, [TABLES[0].slice(0, 0)]) == [[]] * PARTITIONS


def test_a_plugin_that_keeps_no_data_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="keeps no data to be read again, as Ray Data does"):
        ShuffleSession(None, "pipelined", {}, "tables", "Ray Data")
