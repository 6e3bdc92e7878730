"""Whatever happens while map outputs are compacted, they are there, and nothing else is left."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.harness.cluster import wait_until
from bench.harness.server import ServerProcess
from shuffle_api.errors import MapOutputLost
from shuffle_api.ids import MapAttempt
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.compaction_shown import CompactionShown
from shuffle_server.store import compacted_file as format_module
from shuffle_server.store import compacted_files as files_module
from shuffle_server.store import compacted_writer as file_module
from shuffle_server.store import pending_outputs as pending_module
from shuffle_server.store.compacted_run import CompactedRun
from shuffle_server.store.compaction_model import CompactionOptions, WritePace
from shuffle_server.store.device import Device
from shuffle_server.store.options import StoreOptions
from shuffle_server.store.scrub import Pace, check_all, check_one
from shuffle_server.store.store import Store
from tests.shuffle_server.compaction import (
    PARTITIONS,
    SLOW,
    compacted,
    compacted_paths,
    decided,
    expected,
    in_files,
    own_files,
    some_outputs,
    wanted,
    written,
)
from tests.shuffle_server.helpers import (
    SPEC,
    batch,
    block,
    mounted_tmpfs,
    read_all,
    write_map,
)
from tests.shuffle_server.observe.helpers import Scrape
from tests.shuffle_server.test_fetch_handler import pull, write


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_module, "READ_SECONDS", 0.0)


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


def test_an_output_that_is_committed_when_its_shuffle_is_over_waits_for_nothing(tmp_path: Path) -> None:
    store, _ = written(tmp_path, some_outputs())
    description = store.describe(SPEC.id, 0)
    store.remove_shuffle(SPEC.id)
    assert store.statistics().compaction.pending == 0
    store.compaction.committed(description, next(iter(store._directories)))  # its commit was under way
    assert store.compaction.merge() == 0
    assert store.statistics().compaction.pending == 0


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


def test_a_restart_reads_what_was_compacted(tmp_path: Path) -> None:
    pushed = some_outputs()
    store, outputs = written(tmp_path, pushed)
    assert compacted(store, outputs) == 1
    assert own_files(tmp_path) == []
    store.remove_output(SPEC.id, outputs[4])
    store.close()
    again = Store(tmp_path, options=StoreOptions(compaction=SLOW))
    rest = [output for output in outputs if output != outputs[4]]
    assert sorted(each.output for each in again.recover()) == rest
    assert compacted(again, rest) == 0
    assert in_files(again, wanted(rest, 2, 4)) == len(rest)
    assert pull(again, wanted(rest, 2, 4))[0] == expected(pushed, wanted(rest, 2, 4))
    assert pull(again, wanted(outputs[4:5]))[1]
    for output in rest:
        assert pull(again, wanted([output]))[0] == expected(pushed, wanted([output]))
        assert again.describe(SPEC.id, output.map).output == output
        again.remove_output(SPEC.id, output)
    assert compacted_paths(tmp_path) == []  # with its last output


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
    store.empty_trash()
    assert store.statistics().compaction.bytes == 0
    assert compacted_paths(tmp_path) == []
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
    assert compacted_paths(tmp_path) == []
    assert pull(store, wanted(outputs))[0] == expected(pushed, wanted(outputs))
    assert compacted(store, outputs) == 0  # not again at once


def test_a_compacted_file_leaves_as_much_room_as_it_takes(tmp_path: Path) -> None:
    with mounted_tmpfs(tmp_path / "disk", 16 << 20) as disk:
        pushed = [[(partition, os.urandom(1 << 16)) for partition in range(PARTITIONS)] for _ in range(20)]
        slow = CompactionOptions(1, Device("measured", 10, 150 << 20), 1)
        store, outputs = written(disk, pushed[:6], slow)
        assert compacted(store, outputs) == 1
        outputs += [write(store, map_id, pushed[map_id]) for map_id in range(6, 20)]
        assert compacted(store, outputs) == 0  # as much again would not be left
        assert len(own_files(disk)) == 14
        for output in outputs:
            assert pull(store, wanted([output]))[0] == expected(pushed, wanted([output]))
        store.close()


def test_a_damaged_output_of_a_compacted_file_is_lost_alone(tmp_path: Path) -> None:
    pushed = some_outputs()
    store, outputs = written(tmp_path, pushed)
    assert compacted(store, outputs) == 1
    file, fd = store.open_output(SPEC.id, outputs[3])
    os.close(fd)
    at = int(file.index["offset"][file.index["length"] > 0][0])
    with file.path.open("r+b") as damaged:
        damaged.seek(at)
        byte = damaged.read(1)[0]
        damaged.seek(at)
        damaged.write(bytes([byte ^ 1]))
    assert [bool(check_one(store, SPEC.id, output)) for output in outputs] == [output.map == 3 for output in outputs]
    checked = {each.output: each.wrong for each in check_all(store, None, Pace(0))}
    assert [output for output, wrong in checked.items() if wrong] == [outputs[3]]
    assert "1 of" in checked[outputs[3]]


@pytest.mark.parametrize("kept", [0, 40, -1])
def test_a_compacted_file_that_was_cut_is_set_aside_at_a_start(tmp_path: Path, kept: int) -> None:
    store, outputs = written(tmp_path, some_outputs())
    assert compacted(store, outputs) == 1
    (path,) = compacted_paths(tmp_path)
    os.truncate(path, kept if kept >= 0 else path.stat().st_size + kept)
    again = Store(tmp_path, options=StoreOptions(compaction=SLOW))
    assert list(again.recover()) == []
    assert [path.suffix for path in path.parent.iterdir()] == [".torn"]


def test_a_damaged_table_of_a_compacted_file_is_not_believed(tmp_path: Path) -> None:
    pushed = some_outputs()
    store, outputs = written(tmp_path, pushed)
    compacted(store, outputs)
    (run,) = store.merged(SPEC.id, wanted(outputs, 2, 3))
    assert isinstance(run, CompactedRun)
    file = run.places[0].file
    at = file.span(2, 3)[0] + format_module.COMPACTED_ROW.itemsize - 4  # which output the first block is of
    os.pwrite(file.fd, bytes([os.pread(file.fd, 1, at)[0] ^ 1]), at)
    assert pull(store, wanted(outputs, 2, 3))[:2] == (expected(pushed, wanted(outputs, 2, 3)), [])


class Crash(BaseException):
    """The process is gone at this point."""


_PATHS = {"open": ".compacted", "unlink": ".out"}  # of the files that the step is about


@pytest.mark.parametrize("step", ["open", "first write", "second write", "rename", "enter", "unlink"])
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
            patch.setattr(os, step, _crash(2 if step == "unlink" else 1, getattr(os, step), _PATHS[step]))
        elif step == "rename":
            patch.setattr(os, step, _crash(1, os.rename))
        else:
            patch.setattr(os, "pwritev", _crash(1 if step == "first write" else 2, os.pwritev))
        with pytest.raises(Crash):
            store.compaction.merge()
    again = Store(tmp_path, options=StoreOptions(compaction=SLOW))
    assert sorted(each.output for each in again.recover()) == outputs
    assert pull(again, wanted(outputs))[0] == expected(pushed, wanted(outputs))
    assert again.compaction.merge() == (step not in ("enter", "unlink"))
    assert in_files(again, wanted(outputs)) == len(outputs)
    assert pull(again, wanted(outputs))[0] == expected(pushed, wanted(outputs))
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".compacted"}


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


def _shown(server: ServerProcess) -> list[str]:
    reply = server.status()
    return [CompactionShown(reply).of(each) for each in reply.shuffles]


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
            wait_until(lambda: own_files(server.data_dir) == [], "the outputs are compacted")
            wait_until(lambda: Scrape(server.metrics)("disk_bound") == 1, "it looks at the memory")
            figures = Scrape(server.metrics)
            assert figures("merged_bytes") > 0
            assert figures("compaction_pending_bytes") == 0
            assert read_all(plugin, handle) == records
            assert len(compacted_paths(server.data_dir)) > 0
            wait_until(lambda: _shown(server) == ["compacted 40"], "the decision is shown")
            server.kill()
            server.restart()
