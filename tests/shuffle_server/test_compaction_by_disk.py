"""Map outputs with blocks small for their disk are compacted; every byte read is the one that was written."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.cluster import wait_until
from bench.server import ServerProcess
from shuffle_api.errors import MapOutputLost
from shuffle_api.ids import MapAttempt
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.store import compacted_file as file_module
from shuffle_server.store import compacted_files as files_module
from shuffle_server.store import compaction_model as model_module
from shuffle_server.store import output_file as output_module
from shuffle_server.store import pending_outputs as pending_module
from shuffle_server.store.compacted_files import CompactedRun
from shuffle_server.store.compaction_model import CompactionOptions, WritePace
from shuffle_server.store.device import KINDS, Device
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.store import Store
from shuffle_server.worker import fetch_handler as fetch_module
from tests.shuffle_server.helpers import (
    SPEC,
    batch,
    block,
    mounted_tmpfs,
    open_files,
    read_all,
    write_map,
)
from tests.shuffle_server.observe.helpers import Scrape
from tests.shuffle_server.test_fetch_handler import pull, write

PARTITIONS = 8
DISK = Device("measured", 1000, 150 << 20)
SLOW = CompactionOptions(below=1, device=DISK, page_cache=1)  # nothing is small, and all is on the disk
Pushed = list[list[tuple[int, bytes]]]
BLOCKS = st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.binary(max_size=40)), max_size=9)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_module, "READ_SECONDS", 0.0)


def wanted(outputs: list[MapAttempt], first: int = 0, end: int = PARTITIONS) -> list[OutputRange]:
    return [OutputRange(output, first, end) for output in outputs]


def expected(pushed: Pushed, ranges: list[OutputRange]) -> list[tuple[int, int, bytes]]:
    """What a pull of these has: range by range, by partition, inside one as it was written."""
    return [
        (each.output.map, partition, payload)
        for each in ranges
        for partition, payload in sorted(pushed[each.output.map], key=lambda pushed: pushed[0])
        if each.first <= partition < each.end
    ]


def compacted(store: Store, outputs: list[MapAttempt]) -> int:
    """Read one of them, so that all are compacted; the number of compacted files made."""
    pull(store, wanted(outputs[:1], 0, 1))
    return store.compaction.merge()


def in_files(store: Store, ranges: list[OutputRange]) -> int:
    """How many ranges are read out of compacted files."""
    return sum(len(each.ranges) for each in store.merged(SPEC.id, ranges) if isinstance(each, CompactedRun))


def some_outputs(maps: int = 6, size: int = 90) -> Pushed:
    rng = random.Random(7)
    return [[(rng.randrange(PARTITIONS), rng.randbytes(rng.randrange(size))) for _ in range(20)] for _ in range(maps)]


def written(root: Path, pushed: Pushed, options: CompactionOptions = SLOW) -> tuple[Store, list[MapAttempt]]:
    store = Store(root, compaction=options)
    return store, [write(store, map_id, blocks) for map_id, blocks in enumerate(pushed)]


def nameless(root: Path) -> int:
    """Compacted files that this process has open."""
    return sum(name.endswith("(deleted)") for name in open_files(root))


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
    store = Store(tmp_path, compaction=SLOW)
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


def test_who_reads_much_of_each_output_reads_their_own_files(tmp_path: Path) -> None:
    large = [[(partition, os.urandom(60_000)) for partition in range(PARTITIONS)] for _ in range(3)]
    store, outputs = written(tmp_path, large)
    assert compacted(store, outputs) == 1
    assert in_files(store, wanted(outputs, 2, 3)) == 3
    assert in_files(store, wanted(outputs)) == 0
    assert in_files(store, wanted(outputs[:1], 2, 3)) == 0


# ---------------------------------------------------------------------- the decision


def decided(store: Store) -> dict[str, int]:
    return {what: count for what, count in store.statistics().compaction.decisions.items() if count}


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
    store = Store(tmp_path, compaction=slow)
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


# ---------------------------------------------------------------------- what may happen meanwhile


def test_an_attempt_that_lost_is_in_no_file(tmp_path: Path) -> None:
    pushed = some_outputs()
    store, outputs = written(tmp_path, pushed)
    loser = store.stage(SPEC, MapAttempt(2, 1), "none")
    turn = loser.new_fencing_token()
    loser.append(turn, batch([block(5, b"lost")]))
    assert store.publish(loser, turn) is None
    assert compacted(store, outputs) == 1
    assert pull(store, wanted(outputs))[0] == expected(pushed, wanted(outputs))
    ((error),) = pull(store, wanted([MapAttempt(2, 1)]))[1]
    assert isinstance(error, MapOutputLost)


def test_an_output_that_is_lost_before_its_group_is_compacted_costs_its_group_nothing(tmp_path: Path) -> None:
    pushed = some_outputs()
    store, outputs = written(tmp_path, pushed)
    store.remove_output(SPEC.id, outputs[3])
    (path,) = tmp_path.rglob("0.0.out")
    path.unlink()
    assert compacted(store, outputs[1:]) == 1
    rest = [output for output in outputs[1:] if output.map != 3]
    assert in_files(store, wanted(rest)) == len(rest)
    assert pull(store, wanted(rest))[0] == expected(pushed, wanted(rest))


def test_a_restart_reads_the_outputs_and_compacts_them_again_when_they_are_read(tmp_path: Path) -> None:
    pushed = some_outputs()
    store, outputs = written(tmp_path, pushed)
    assert compacted(store, outputs) == 1
    store.close()
    again = Store(tmp_path, compaction=SLOW)
    assert len(list(again.recover())) == len(outputs)
    assert again.compaction.merge() == 0  # nobody reads them
    assert pull(again, wanted(outputs))[0] == expected(pushed, wanted(outputs))
    assert again.compaction.merge() == 1
    assert in_files(again, wanted(outputs, 2, 4)) == len(outputs)
    assert pull(again, wanted(outputs, 2, 4))[0] == expected(pushed, wanted(outputs, 2, 4))


@pytest.mark.parametrize("over", ["shuffle", "app", "stopping"])
def test_what_is_over_while_it_is_compacted_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: str
) -> None:
    monkeypatch.setattr(file_module, "SLICE_PARTITIONS", 1)
    store, outputs = written(tmp_path, some_outputs())
    slices: list[int] = []
    stop = False

    def spend(self: WritePace, size: int) -> None:
        nonlocal stop
        slices.append(size)
        stop = over == "stopping"
        if over == "shuffle":
            store.remove_shuffle(SPEC.id)
        elif over == "app":
            store.remove_app(SPEC.id.app)

    monkeypatch.setattr(WritePace, "spend", spend)
    pull(store, wanted(outputs[:1]))
    assert store.compaction.merge(lambda: stop) == 0
    assert len(slices) == 1
    store.close_idle()
    assert store.statistics().compaction.bytes == nameless(tmp_path) == 0
    assert store.statistics().compaction.pending == 0
    assert decided(store) == {}


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_during_a_compaction_leaves_the_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    monkeypatch.setattr(file_module, "SLICE_PARTITIONS", 1)
    pushed = some_outputs()
    store, outputs = written(tmp_path, pushed)
    real, calls = os.pwritev, 0

    def pwritev(*arguments: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(error, os.strerror(error))
        return real(*arguments)

    monkeypatch.setattr(os, "pwritev", pwritev)
    assert compacted(store, outputs) == 0
    assert (calls, decided(store)) == (3, {"failed": 6})
    assert nameless(tmp_path) == 0
    assert pull(store, wanted(outputs))[0] == expected(pushed, wanted(outputs))
    assert compacted(store, outputs) == 0  # not again at once


def test_copies_leave_as_much_room_as_they_take_and_go_when_outputs_need_it(tmp_path: Path) -> None:
    with mounted_tmpfs(tmp_path / "disk", 16 << 20) as disk:
        pushed = [[(partition, os.urandom(1 << 16)) for partition in range(PARTITIONS)] for _ in range(28)]
        slow = CompactionOptions(1, Device("measured", 10, 150 << 20), 1)
        store, outputs = written(disk, pushed[:6], slow)
        assert compacted(store, outputs) == 1
        copies = store.statistics().compaction.bytes
        assert copies > 6 * PARTITIONS << 16
        outputs += [write(store, map_id, pushed[map_id]) for map_id in range(6, 14)]
        assert compacted(store, outputs) == 0  # as much again would not be left
        assert store.statistics().compaction.bytes == copies
        outputs += [write(store, map_id, pushed[map_id]) for map_id in range(14, 28)]
        assert store.statistics().compaction.bytes == 0
        for output in outputs:
            assert pull(store, wanted([output]))[0] == expected(pushed, wanted([output]))
        store.close()


class Crash(BaseException):
    """The process is gone at this point."""


@pytest.mark.parametrize("step", ["open", "unlink", "first write", "second write", "enter"])
def test_a_crash_between_any_two_steps_leaves_the_outputs_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    pushed = some_outputs()
    store, outputs = written(tmp_path, pushed)
    pull(store, wanted(outputs[:1]))
    with monkeypatch.context() as patch:
        patch.setattr(file_module, "SLICE_PARTITIONS", 1)
        if step == "enter":
            patch.setattr(files_module.CompactedFiles, "_enter", _crash(1, None))
        elif step in ("open", "unlink"):
            patch.setattr(os, step, _crash(1, getattr(os, step), "/trash/"))
        else:
            patch.setattr(os, "pwritev", _crash(1 if step == "first write" else 2, os.pwritev))
        with pytest.raises(Crash):
            store.compaction.merge()
    again = Store(tmp_path, compaction=SLOW)
    assert sorted(each.output for each in again.recover()) == outputs
    assert pull(again, wanted(outputs))[0] == expected(pushed, wanted(outputs))
    assert again.compaction.merge() == 1
    assert pull(again, wanted(outputs))[0] == expected(pushed, wanted(outputs))
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".out"}


def _crash(on: int, real: Callable[..., Any] | None, where: str = "") -> Callable[..., Any]:
    """The call number `on` (of those with a path that has `where` in it) does not return."""
    calls = 0

    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += where in str(arguments[0])
        if calls == on:
            raise Crash
        assert real is not None
        return real(*arguments, **named)

    return call


def test_a_server_compacts_by_itself_and_says_so(tmp_path: Path) -> None:
    arguments = ["--metrics-listen", "127.0.0.1:0", "--device", "1000:150", "--page-cache", "1k", "--merge-below", "1"]
    with (
        ServerProcess(tmp_path / "data", tmp_path / "server.log", arguments) as server,
        RemoteShuffle({"server": server.control, "timeout": 120, "retry": 120, "hand_over": "off"}) as plugin,
        plugin.master("job") as master,
    ):
        handle = master.register_shuffle(4, 40)
        records = sorted(record for map_id in range(40) for record in write_map(plugin, handle, map_id, 40))
        for _ in range(2):
            assert read_all(plugin, handle) == records
            wait_until(lambda: Scrape(server.metrics)("merged_bytes") > 0, "the outputs are compacted")
            figures = Scrape(server.metrics)
            assert figures("disk_bound") == 1
            assert figures("compaction_outputs_total", decision="compacted") == 40
            assert figures("compaction_pending_bytes") == 0
            assert read_all(plugin, handle) == records
            server.kill()
            server.restart()
