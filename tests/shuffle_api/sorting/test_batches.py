"""Batches in order: sorted and combined at the writer, merged at the reader, with any memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shuffle_api.columnar import HashPartitioner, Order
from shuffle_api.columnar.arrays import taken
from shuffle_api.errors import InvalidArgument, StorageFull
from shuffle_api.ids import MapAttempt
from shuffle_api.sorting import batches
from shuffle_api.sorting.batches import SortedBatchWriter, merged_batches
from shuffle_api.sorting.combining import Combiner
from shuffle_api.testing import MemoryShuffle
from shuffle_api.values import ShuffleHandle
from tests.shuffle_server.helpers import mounted_tmpfs

PARTITIONS, MAPS = 3, 4
ORDER = Order.by("word", ("size", "descending"))
BY_WORD = HashPartitioner("word")


@pytest.fixture
def plugin() -> Iterator[MemoryShuffle]:
    with MemoryShuffle({"content": "arrow"}) as plugin:
        yield plugin


@pytest.fixture
def handle(plugin: MemoryShuffle) -> Iterator[ShuffleHandle]:
    with plugin.master("app") as master:
        yield master.register_shuffle(PARTITIONS, MAPS)


def table(seed: int, rows: int = 5_000) -> Any:
    chance = np.random.default_rng(seed)
    words = [f"w{n}" if n else None for n in chance.integers(0, 200, rows).tolist()]
    sizes = chance.integers(0, 5, rows)
    return pa.record_batch({"n": np.arange(rows) + seed * 1_000_000, "word": words, "size": sizes})


def write(
    plugin: MemoryShuffle, handle: ShuffleHandle, map: int, given: list[Any], order: Order = ORDER, **options: Any
) -> int:
    """Write a map in order; the bytes that were spilled on the way."""
    writer = SortedBatchWriter(plugin.writer(handle, MapAttempt(map, 0)), handle, order, **options)
    with writer:
        for batch in given:
            writer.write_batch(batch, BY_WORD)
        spilled = writer.spilled_bytes
        writer.commit()
    return spilled


def read(plugin: MemoryShuffle, handle: ShuffleHandle, order: Order = ORDER, **options: Any) -> dict[int, Any]:
    found: dict[int, list[Any]] = defaultdict(list)
    with plugin.reader(handle, range(handle.spec.partitions)) as reader:
        for partition, batch in merged_batches(reader, handle, order, **options):
            found[partition].append(batch)
    return {partition: pa.concat_batches(many) for partition, many in found.items()}


def expected(given: list[Any], partition: int, order: Order = ORDER) -> Any:
    whole = pa.concat_batches(given)
    mine = taken(whole, np.flatnonzero(BY_WORD.partitions_of(whole, PARTITIONS) == partition))
    return taken(mine, order.sorted_rows(order.keys_of(mine)))


@pytest.mark.parametrize("memory", [1 << 30, 400_000, 100_000])
def test_merged_is_everything_sorted_and_equal_keys_in_the_order_of_their_maps(
    plugin: MemoryShuffle, handle: ShuffleHandle, memory: int, tmp_path: Path
) -> None:
    given = [table(map) for map in range(MAPS)]
    for map, batch in enumerate(given):
        parts = [batch.slice(at, 700) for at in range(0, batch.num_rows, 700)]
        spilled = write(plugin, handle, map, parts, memory=memory, spill_dir=str(tmp_path))
        assert (spilled > 0) == (memory < 1 << 30)
    got = read(plugin, handle, memory=memory, spill_dir=str(tmp_path))
    assert not list(tmp_path.iterdir())
    for partition in range(PARTITIONS):
        assert got[partition].equals(expected(given, partition))


@pytest.mark.parametrize("memory", [1 << 30, 100_000])
def test_merged_and_combined_is_what_a_counter_says(
    plugin: MemoryShuffle, handle: ShuffleHandle, memory: int, tmp_path: Path
) -> None:
    order, combiner = Order.by("word"), Combiner(n="sum", size="max")
    given = [table(map) for map in range(MAPS)]
    for map, batch in enumerate(given):
        write(plugin, handle, map, [batch], order, combine=combiner, memory=memory, spill_dir=str(tmp_path))
        with plugin.reader(handle, range(PARTITIONS), range(map, map + 1)) as reader:
            assert sum(b.num_rows for _, b in reader.read_batches()) == len(set(batch["word"].to_pylist()))
    sums: Counter[str | None] = Counter()
    for row in pa.concat_batches(given).to_pylist():
        sums[row["word"]] += row["n"]
    got = read(plugin, handle, order, combine=combiner, memory=memory, spill_dir=str(tmp_path))
    rows = [row for batch in got.values() for row in batch.to_pylist()]
    assert {row["word"]: row["n"] for row in rows} == dict(sums)
    assert len(rows) == len(sums)
    for partition, batch in got.items():
        words = batch["word"].to_pylist()
        assert words == sorted(words, key=lambda word: (word is None, word))
        assert set(BY_WORD.partitions_of(batch, PARTITIONS).tolist()) == {partition}


def test_more_runs_and_maps_than_are_merged_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(batches, "FAN_IN", 3)
    monkeypatch.setattr(batches, "PIECE_BYTES", 2_000)
    with MemoryShuffle({"content": "arrow"}) as plugin, plugin.master("app") as master:
        handle = master.register_shuffle(PARTITIONS, 11)
        given = [table(map, 600) for map in range(11)]
        for map, batch in enumerate(given):
            write(plugin, handle, map, [batch], memory=8_000, spill_dir=str(tmp_path))
        got = read(plugin, handle, memory=1_000, spill_dir=str(tmp_path))
        for partition in range(PARTITIONS):
            assert got[partition].equals(expected(given, partition))


def test_nothing_and_batches_without_rows(plugin: MemoryShuffle, handle: ShuffleHandle) -> None:
    for map in range(MAPS):
        write(plugin, handle, map, [table(map, 0)] * map)
    assert read(plugin, handle) == {}


def test_a_map_that_was_not_written_in_order_is_named(plugin: MemoryShuffle, handle: ShuffleHandle) -> None:
    for map in range(MAPS):
        if map != 2:
            write(plugin, handle, map, [table(map)])
            continue
        with plugin.writer(handle, MapAttempt(map, 0)) as writer:
            writer.write_batch(table(map), BY_WORD)
            writer.commit()
    with pytest.raises(InvalidArgument, match="partition 0 of map 2 is not in the order of word, size"):
        read(plugin, handle)


def test_a_full_disk_fails_the_attempt_which_never_commits(
    plugin: MemoryShuffle, handle: ShuffleHandle, tmp_path: Path
) -> None:
    with mounted_tmpfs(tmp_path / "disk", 256 << 10) as disk:
        inner = plugin.writer(handle, MapAttempt(0, 0))
        with SortedBatchWriter(inner, handle, ORDER, memory=100_000, spill_dir=str(disk)) as writer:
            with pytest.raises(StorageFull, match=str(disk)):
                for _ in range(100):
                    writer.write_batch(table(1), BY_WORD)
            with pytest.raises(InvalidArgument, match="failed"):
                writer.commit()
        write(plugin, handle, 0, [table(2)], memory=100_000, spill_dir=str(disk))  # its space is free again


def test_what_does_not_fit_is_refused_before_anything_is_taken(plugin: MemoryShuffle, handle: ShuffleHandle) -> None:
    inner = plugin.writer(handle, MapAttempt(0, 0))
    for order, combiner, says in [
        (Order.by("nowhere"), None, "no column 'nowhere'"),
        (Order.by("word"), Combiner(n="sum"), "every column is either"),
    ]:
        writer = SortedBatchWriter(inner, handle, order, combine=combiner)
        with pytest.raises(InvalidArgument, match=says):
            writer.write_batch(table(0), BY_WORD)
    with SortedBatchWriter(inner, handle, ORDER) as writer:
        writer.write_batch(table(0), BY_WORD)
        with pytest.raises(InvalidArgument, match="schema changes"):
            writer.write_batch(table(0).drop_columns(["n"]), BY_WORD)
        assert writer.commit().totals.records == 5_000


def test_shuffles_of_records_are_refused(tmp_path: Path) -> None:
    with MemoryShuffle() as plugin, plugin.master("app") as master:
        handle = master.register_shuffle(1, 1)
        with plugin.writer(handle, MapAttempt(0, 0)) as writer:
            with pytest.raises(InvalidArgument, match="no batches"):
                SortedBatchWriter(writer, handle, ORDER)
            writer.commit()
        with plugin.reader(handle, range(1)) as reader, pytest.raises(InvalidArgument, match="no batches"):
            next(merged_batches(reader, handle, ORDER))
