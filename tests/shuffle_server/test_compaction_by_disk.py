"""Map outputs with blocks small for their disk are compacted; every byte read is the one that was written."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shuffle_api.ids import MapAttempt
from shuffle_server.store import compacted_files as files_module
from shuffle_server.store import compacted_writer as file_module
from shuffle_server.store import compaction_model as model_module
from shuffle_server.store import output_file as output_module
from shuffle_server.store import pending_outputs as pending_module
from shuffle_server.store.compacted_run import CompactedRun
from shuffle_server.store.compaction_model import CompactionOptions, WritePace, left_over
from shuffle_server.store.device import KINDS, Device
from shuffle_server.store.directory import WriteLoad
from shuffle_server.store.options import StoreOptions
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.store import Store
from shuffle_server.worker import fetch_handler as fetch_module
from tests.shuffle_server.compaction import (
    DISK,
    PARTITIONS,
    SLOW,
    Pushed,
    compacted,
    decided,
    expected,
    in_files,
    some_outputs,
    wanted,
    written,
)
from tests.shuffle_server.helpers import (
    SPEC,
)
from tests.shuffle_server.test_fetch_handler import pull, write

BLOCKS = st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.binary(max_size=40)), max_size=9)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_module, "READ_SECONDS", 0.0)


# ---------------------------------------------------------------------- every byte


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.data(),
    st.lists(BLOCKS, min_size=2, max_size=7),
    st.sampled_from([60, 300, 8 << 20]),
    st.sampled_from([100, 1 << 30]),
    st.sampled_from([1, 500]),
)
def test_whatever_is_read_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, pushed: Pushed, cut: int, group: int, few: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_module, "SLICE_BYTES", cut)
        patch.setattr(file_module, "SLICE_PARTITIONS", few)
        patch.setattr(model_module, "COMPACTED_BYTES", group)
        store, outputs = written(tmp_path_factory.mktemp("store"), pushed)
        compacted(store, outputs)
        bounds = st.integers(0, PARTITIONS)
        some = data.draw(st.permutations(outputs))[: data.draw(st.integers(0, len(outputs)))]
        first, end = sorted((data.draw(bounds), data.draw(bounds)))
        mixed = [OutputRange(each, *sorted((data.draw(bounds), data.draw(bounds)))) for each in some]
        for ranges in (wanted(some, first, end), mixed, wanted(outputs), wanted(outputs[1:-1], 3, 4)):
            blocks, errors, _ = pull(store, ranges)
            assert (blocks, errors) == (expected(pushed, ranges), [])
        gone = data.draw(st.sampled_from(outputs))
        store.remove_output(SPEC.id, gone)
        blocks, errors, _ = pull(store, wanted(outputs, first, end))
        assert blocks == [each for each in expected(pushed, wanted(outputs, first, end)) if each[0] != gone.map]
        assert [error.output for error in errors] == [gone]
        store.close()


def test_outputs_of_two_files_are_read_in_the_order_that_was_asked_for(tmp_path: Path) -> None:
    pushed = some_outputs(12)
    store = Store(tmp_path, options=StoreOptions(compaction=SLOW))
    outputs: dict[int, MapAttempt] = {}
    for maps in (range(0, 12, 2), range(1, 12, 2)):
        outputs |= {map_id: write(store, map_id, pushed[map_id]) for map_id in maps}
        assert compacted(store, [outputs[map_id] for map_id in maps]) == 1
    ranges = wanted([outputs[map_id] for map_id in range(12)], 2, 5)
    (run,) = store.merged(SPEC.id, ranges)
    assert isinstance(run, CompactedRun)
    assert len({file for file, _ in run.places}) == 2
    assert pull(store, ranges)[0] == expected(pushed, ranges)


def test_a_partition_larger_than_a_slice_is_copied_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_module, "SLICE_BYTES", 1000)
    pushed = [[(number % 2 * 5, os.urandom(300)) for number in range(30)] for _ in range(4)]
    store, outputs = written(tmp_path, pushed)
    assert compacted(store, outputs) == 1
    assert in_files(store, wanted(outputs)) == 4
    assert pull(store, wanted(outputs))[0] == expected(pushed, wanted(outputs))


# ---------------------------------------------------------------------- how much a disk has to do


def test_a_partition_of_many_outputs_is_one_run_of_bytes_and_the_disk_is_asked_for_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed = [[(partition, os.urandom(5000)) for partition in range(PARTITIONS)] for _ in range(40)]
    store, outputs = written(tmp_path, pushed)
    assert compacted(store, outputs) == 1
    stretches: list[int] = []
    advice: list[tuple[int, int, int]] = []
    read = output_module.read_ranges

    def read_ranges(fds: Any, offsets: Any, lengths: Any, target: memoryview) -> None:
        stretches.append(len(fds))
        read(fds, offsets, lengths, target)

    monkeypatch.setattr(fetch_module, "read_ranges", read_ranges)
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, offset, length, what: advice.append((offset, length, what)))
    assert pull(store, wanted(outputs, 3, 4))[0] == expected(pushed, wanted(outputs, 3, 4))
    assert stretches == [1]
    (run,) = store.merged(SPEC.id, wanted(outputs, 3, 4))
    assert isinstance(run, CompactedRun)
    low, high = run.places[0][0].span(3, 4)
    assert advice[0] == (low, high - low, os.POSIX_FADV_WILLNEED)
    assert all(low <= offset and offset + length <= high for offset, length, _ in advice)
    stretches.clear()
    assert pull(store, wanted(outputs[10:20], 3, 4))[0] == expected(pushed, wanted(outputs[10:20], 3, 4))
    assert stretches == [1]  # a range of maps, too


def test_nothing_behind_a_block_is_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, outputs = written(tmp_path, some_outputs(2))
    advice: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, offset, length, what: advice.append(what))
    pull(store, wanted(outputs[:1]))
    assert advice[0] == os.POSIX_FADV_RANDOM


def test_who_reads_much_of_each_output_or_one_of_them_has_the_same_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = [[(partition, os.urandom(60_000)) for partition in range(PARTITIONS)] for _ in range(3)]
    store, outputs = written(tmp_path, large)
    assert compacted(store, outputs) == 1
    assert in_files(store, wanted(outputs, 2, 3)) == 3
    assert in_files(store, wanted(outputs[:1], 2, 3)) == 0
    with monkeypatch.context() as patch:
        patch.setattr(files_module, "MOST_RUN_ROWS", 5)
        assert in_files(store, wanted(outputs)) == 0
        assert pull(store, wanted(outputs))[0] == expected(large, wanted(outputs))
    assert pull(store, wanted(outputs))[0] == expected(large, wanted(outputs))
    assert pull(store, wanted(outputs[:1], 2, 5))[0] == expected(large, wanted(outputs[:1], 2, 5))


# ---------------------------------------------------------------------- the decision


def test_what_memory_holds_is_not_written_again_until_there_is_more_of_it(tmp_path: Path) -> None:
    pushed = some_outputs(8)
    size = sum(len(payload) for blocks in pushed[:6] for _, payload in blocks)
    options = CompactionOptions(1, DISK, page_cache=2 * size)
    store, outputs = written(tmp_path, pushed[:6], options)
    assert compacted(store, outputs) == 0
    statistics = store.statistics().compaction
    assert (statistics.pending, statistics.disk_bound, statistics.bytes) == (size, False, 0)
    outputs += [write(store, map_id, pushed[map_id]) for map_id in (6, 7)]
    assert compacted(store, outputs) == 1
    assert store.statistics().compaction.disk_bound
    assert in_files(store, wanted(outputs)) == 8
    assert decided(store) == {"compacted": 8}


def test_blocks_large_for_the_disk_are_not_written_again(tmp_path: Path) -> None:
    large = [[(partition, os.urandom(1 << 19)) for partition in range(2)] for _ in range(3)]
    store, outputs = written(tmp_path, large)
    assert compacted(store, outputs) == 0
    assert (store.statistics().compaction.pending, decided(store)) == (0, {})
    # Small ones that lie together are a large one.
    joined = [[(partition, os.urandom(1 << 12)) for partition in (0, 1) for _ in range(64)] for _ in range(3)]
    store, outputs = written(tmp_path / "joined", joined)
    assert compacted(store, outputs) == 0
    assert decided(store) == {"large_blocks": 3}
    store, outputs = written(tmp_path / "solid", some_outputs(), CompactionOptions(1, KINDS["memory"], 1))
    assert compacted(store, outputs) == 0
    store, outputs = written(tmp_path / "off", some_outputs(), CompactionOptions(0, DISK, 1))
    assert compacted(store, outputs) == 0


def test_a_group_is_full_when_a_partition_of_it_is_worth_a_seek(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = CompactionOptions(1, Device("measured", 1, 300), 1)  # 300 bytes in the time of a seek
    store = Store(tmp_path, options=StoreOptions(compaction=slow))
    monkeypatch.setattr(WritePace, "spend", lambda self, size: None)
    blocks = [(partition, bytes(99)) for partition in range(PARTITIONS)]
    for map_id in range(20):
        write(store, map_id, blocks)
    assert SPEC.partitions == PARTITIONS
    assert store.compaction.merge() == 2  # of 7 outputs each: 600 bytes of a partition
    assert decided(store) == {"compacted": 14}
    assert store.statistics().compaction.pending == 6 * PARTITIONS * 99
    monkeypatch.setattr(pending_module, "QUIET_SECONDS", 0.0)
    assert store.compaction.merge() == 1


def test_rate_of_what_is_written_is_right_from_its_first_second_and_lasts_over_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    load = WriteLoad()
    load.begun()  # one is being written all the time
    for second in range(10):
        load.begun()
        now += 1
        load.ended(100)
        assert 99 < load.rate() < 125, second
    now += 2  # the disk holds its writers up
    assert load.rate() > 65
    load.ended(0)
    now += 60
    load.begun()
    now += 1
    load.ended(10)
    assert 9 < load.rate() < 12.5, "what was written before the pause does not count"


def test_outputs_that_come_in_have_the_disk_to_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the page cache does not hold what waits, it is compacted when the disk has time, or a reader needs it."""
    monkeypatch.setattr(WritePace, "spend", lambda self, size: None)
    monkeypatch.setattr(pending_module, "QUIET_SECONDS", 0.0)
    store, _ = written(tmp_path / "not cached", some_outputs(), CompactionOptions(1, DISK, 1))
    [home] = store._directories
    for size in (0, 10 * int(DISK.bandwidth)):
        home.incoming.begun()
        home.incoming.ended(size)
    assert left_over(home) == DISK.bandwidth  # nothing is being written any more
    home.incoming.begun()
    assert left_over(home) < 0
    assert store.compaction.merge() == 0
    store.compaction.read(SPEC.id)
    assert store.compaction.merge() == 1

    store, _ = written(tmp_path / "cached", some_outputs(), CompactionOptions(1, DISK, 1))
    [home] = store._directories
    home.incoming.begun()
    home.incoming.ended(10 * int(DISK.bandwidth))
    home.incoming.begun()
    monkeypatch.setattr(store.compaction._model, "look", lambda: None)
    store.compaction._model.cached_bytes, store.compaction._model.disk_bound = 1 << 40, True
    assert store.compaction.merge() == 1


def test_what_is_compacted_waits_for_its_share_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(model_module, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=waits.append))

    class Home:
        device = Device("measured", 1, 800)
        incoming = SimpleNamespace(count=1, rate=lambda: 600.0)

    WritePace(Home(), lambda: True).spend(1600)  # type: ignore[arg-type]
    WritePace(Home(), lambda: False).spend(1600)  # type: ignore[arg-type]
    Home.incoming = SimpleNamespace(count=1, rate=lambda: 5000.0)
    WritePace(Home(), lambda: False).spend(1600)  # type: ignore[arg-type]
    assert waits == [1600 / 800, 1600 / 200, 1600 / 50]
