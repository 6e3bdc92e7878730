"""Records in the order of a key: sorted and combined at the writer, merged at the reader, with any memory."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffle_api.errors import InvalidArgument, StorageFull
from shuffle_api.ids import MapAttempt
from shuffle_api.sorting import SortedWriter, merged_records, records
from shuffle_api.testing import MemoryShuffle
from shuffle_api.values import ShuffleHandle
from tests.shuffle_server.helpers import mounted_tmpfs

PARTITIONS = 3


def key(record: bytes) -> bytes:
    """What stands before the colon."""
    return record.partition(b":")[0]


def add(one: bytes, other: bytes) -> bytes:
    return b"%s:%d" % (key(one), int(one.partition(b":")[2]) + int(other.partition(b":")[2]))


@pytest.fixture
def plugin() -> Iterator[MemoryShuffle]:
    with MemoryShuffle() as plugin:
        yield plugin


@pytest.fixture
def handle(plugin: MemoryShuffle) -> Iterator[ShuffleHandle]:
    with plugin.master("app") as master:
        yield master.register_shuffle(PARTITIONS, 4)


def words(seed: int, count: int, distinct: int = 50) -> list[tuple[int, bytes]]:
    """Records `word:1` with their partitions."""
    chance = random.Random(seed)
    numbers = [chance.randrange(distinct) for _ in range(count)]
    return [(number % PARTITIONS, b"w%03d:1" % number) for number in numbers]


def write(plugin: MemoryShuffle, handle: ShuffleHandle, map: int, rows: list[tuple[int, bytes]], **options: Any) -> int:
    """Write a map in order; the bytes that were spilled on the way."""
    with SortedWriter(plugin.writer(handle, MapAttempt(map, 0)), key, **options) as writer:
        for partition, record in rows:
            writer.write(partition, record)
        spilled = writer.spilled_bytes
        writer.commit()
    return spilled


def read(plugin: MemoryShuffle, handle: ShuffleHandle, **options: Any) -> dict[int, list[bytes]]:
    rows: dict[int, list[bytes]] = defaultdict(list)
    with plugin.reader(handle, range(PARTITIONS)) as reader:
        for partition, record in merged_records(reader, key, **options):
            rows[partition].append(record)
    return rows


@pytest.mark.parametrize("memory", [1 << 30, 20_000, 2_000])
def test_a_map_is_written_in_order_and_equal_keys_keep_theirs(
    plugin: MemoryShuffle, handle: ShuffleHandle, memory: int, tmp_path: Path
) -> None:
    rows = [(p, record + b"%d" % n) for n, (p, record) in enumerate(words(1, 2_000))]
    spilled = write(plugin, handle, 0, rows, memory=memory, spill_dir=str(tmp_path))
    assert (spilled > 0) == (memory < 1 << 30)
    assert not list(tmp_path.iterdir())
    with plugin.reader(handle, range(PARTITIONS), range(1)) as reader:
        got = list(reader)
    assert got == sorted(rows, key=lambda row: (row[0], key(row[1])))  # sorted() is stable


@pytest.mark.parametrize("memory", [1 << 30, 20_000, 3_000])
def test_merged_and_combined_is_what_a_counter_says(
    plugin: MemoryShuffle, handle: ShuffleHandle, memory: int, tmp_path: Path
) -> None:
    everything = []
    for map in range(4):
        rows = words(map, 1_500)
        everything += rows
        write(plugin, handle, map, rows, combine=add, memory=memory, spill_dir=str(tmp_path))
    counts = Counter(key(record) for _, record in everything)
    got = read(plugin, handle, combine=add, memory=memory, spill_dir=str(tmp_path))
    for partition, found in got.items():
        expected = sorted(word for word in counts if int(word[1:]) % PARTITIONS == partition)
        assert found == [b"%s:%d" % (word, counts[word]) for word in expected]


def test_the_combiner_leaves_one_record_per_key_and_partition(plugin: MemoryShuffle, handle: ShuffleHandle) -> None:
    rows = words(5, 5_000)
    spilled = write(plugin, handle, 0, rows, combine=add, memory=50_000)
    assert spilled == 0  # combining made room
    with plugin.reader(handle, range(PARTITIONS), range(1)) as reader:
        got = [record for _, record in reader]
    assert len(got) == 50
    assert sum(int(record.partition(b":")[2]) for record in got) == 5_000


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=6)), max_size=30), min_size=1, max_size=6),
    st.sampled_from([1, 400, 1 << 20]),
    st.integers(0, 3),
)
def test_any_records_in_any_memory(maps: list[list[tuple[int, bytes]]], memory: int, prefix: int) -> None:
    def beginning(record: bytes) -> bytes:
        return record[:prefix]

    with MemoryShuffle() as plugin, plugin.master("app") as master:
        handle = master.register_shuffle(PARTITIONS, len(maps))
        for map, rows in enumerate(maps):
            with SortedWriter(plugin.writer(handle, MapAttempt(map, 0)), beginning, memory=memory) as writer:
                for partition, record in rows:
                    writer.write(partition, record)
                writer.commit()
        with plugin.reader(handle, range(PARTITIONS)) as reader:
            got = list(merged_records(reader, beginning, memory=memory))
    everything = [row for rows in maps for row in rows]
    assert got == sorted(everything, key=lambda row: (row[0], beginning(row[1])))


def test_more_runs_and_maps_than_are_merged_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(records, "FAN_IN", 3)
    monkeypatch.setattr(records, "PIECE_BYTES", 100)
    with MemoryShuffle() as plugin, plugin.master("app") as master:
        handle = master.register_shuffle(PARTITIONS, 20)
        everything = []
        for map in range(20):
            rows = [(p, record + b".%d.%d" % (map, n)) for n, (p, record) in enumerate(words(map, 100))]
            everything += rows
            write(plugin, handle, map, rows, memory=1_000, spill_dir=str(tmp_path))
        got = read(plugin, handle, memory=100, spill_dir=str(tmp_path))
    for partition in range(PARTITIONS):
        assert got[partition] == sorted((r for p, r in everything if p == partition), key=key)


def test_a_map_that_was_not_written_in_order_is_named(plugin: MemoryShuffle, handle: ShuffleHandle) -> None:
    for map in range(4):
        with plugin.writer(handle, MapAttempt(map, 0)) as writer:
            for record in [b"a:1", b"c:1"] if map != 2 else [b"a:1", b"c:1", b"b:1"]:
                writer.write(1, record)
            writer.commit()
    with pytest.raises(InvalidArgument, match=r"partition 1 of map 2 .* b'b' follows b'c'"):
        read(plugin, handle)


def test_a_full_disk_fails_the_attempt_which_never_commits(
    plugin: MemoryShuffle, handle: ShuffleHandle, tmp_path: Path
) -> None:
    rows = words(7, 200_000, distinct=999)
    with mounted_tmpfs(tmp_path / "disk", 256 << 10) as disk:
        writer = SortedWriter(plugin.writer(handle, MapAttempt(0, 0)), key, memory=100_000, spill_dir=str(disk))
        with writer:
            with pytest.raises(StorageFull, match=str(disk)):
                for partition, record in rows:
                    writer.write(partition, record)
            with pytest.raises(InvalidArgument, match="failed"):
                writer.commit()
        write(plugin, handle, 0, rows[:1_000], memory=100_000, spill_dir=str(disk))  # its space is free again
    with plugin.reader(handle, range(PARTITIONS), range(1)) as reader:
        assert len(list(reader)) == 1_000


def test_a_commit_that_failed_is_not_taken_up_again(plugin: MemoryShuffle, handle: ShuffleHandle) -> None:
    inner = plugin.writer(handle, MapAttempt(0, 0))
    with SortedWriter(inner, key) as writer:
        writer.write(0, b"a:1")
        writer.write(PARTITIONS, b"b:1")
        with pytest.raises(InvalidArgument, match=f"partition {PARTITIONS}"):
            writer.commit()
        with pytest.raises(InvalidArgument, match="failed"):
            writer.commit()
    assert plugin.writer(handle, MapAttempt(0, 1)).commit().totals.records == 0


def test_committing_again_gives_the_same_and_aborting_leaves_nothing(
    plugin: MemoryShuffle, handle: ShuffleHandle
) -> None:
    with SortedWriter(plugin.writer(handle, MapAttempt(0, 0)), key) as writer:
        writer.write(0, b"a:1")
    with SortedWriter(plugin.writer(handle, MapAttempt(0, 1)), key) as writer:
        writer.write(0, b"b:1")
        output = writer.commit()
        assert writer.commit() == output
        writer.abort()
    with plugin.reader(handle, range(PARTITIONS), range(1)) as reader:
        assert list(reader) == [(0, b"b:1")]


def test_merging_that_is_left_half_way_frees_its_spill(
    plugin: MemoryShuffle, handle: ShuffleHandle, tmp_path: Path
) -> None:
    for map in range(4):
        write(plugin, handle, map, words(map, 100))
    with mounted_tmpfs(tmp_path / "disk", 1 << 20) as disk:
        with (
            plugin.reader(handle, range(PARTITIONS)) as reader,
            closing(merged_records(reader, key, memory=0, spill_dir=str(disk))) as merging,  # type: ignore[type-var]
        ):
            next(merging)
            assert sum(1 for _ in disk.iterdir()) == 0
        with plugin.reader(handle, range(PARTITIONS)) as reader:
            assert len(list(merged_records(reader, key, memory=0, spill_dir=str(disk)))) == 400
