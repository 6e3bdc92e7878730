"""Replaying from disk: more than memory holds, and the blocks of a producer whose process has ended."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from shuffle_api.errors import DeadlineExceeded, InvalidArgument, StorageFailed
from shuffle_api.ids import MapAttempt
from shuffle_api.streaming import Barrier, Captured, ReaderState
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.pipelined import DataBlock, PipelinedReader, PipelinedShuffle
from tests.shuffle_plugins.pipelined.conftest import Open
from tests.shuffle_plugins.pipelined.scene import WAIT, data, records_of, rest, until, write
from tests.shuffle_plugins.pipelined.test_checkpoints import captured

EXACTLY = {"guarantee": "exactly_once", "block_bytes": 1000, "log_bytes": 2000}


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def bytes_of(reader: PipelinedReader, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += records_of(until(reader, DataBlock))
    return found


def test_what_memory_has_no_room_for_is_replayed_from_disk(scene: Open, tmp_path: Path) -> None:
    there = scene(log_dir=str(tmp_path), **EXACTLY)
    records = [bytes([n]) * 1000 for n in range(100)]
    with there.writer() as writer:
        with there.reader() as reader:
            writer.emit(Barrier(1))
            state = captured(until(reader, Captured))
            for record in records:
                writer.write(0, record)
            assert bytes_of(reader, 100) == records
        eventually(lambda: writer.statistics().logged_bytes <= 2000)
        found = writer.statistics()
        assert found.forgotten_blocks == 0
        assert found.log_disk_bytes >= 100_000
        with there.reader(attempt=1, restore=state) as reader:
            writer.commit()
            assert records_of(rest(reader)) == records


def test_log_on_disk_takes_none_of_the_memory_budget(scene: Open, tmp_path: Path) -> None:
    there = scene(log_dir=str(tmp_path), memory="16m", **{**EXACTLY, "log_bytes": "1g", "block_bytes": 100_000})
    record = bytes(100_000)
    with there.writer() as writer, there.reader() as reader:
        writer.emit(Barrier(1))
        state = captured(until(reader, Captured))
        for _ in range(400):  # 40 MB
            writer.write(0, record)
            assert records_of(until(reader, DataBlock)) == [record]
        assert writer.statistics().forgotten_blocks == 0
        assert there.plugin.memory().peak <= 16 << 20
        reader.close()
        with there.reader(attempt=1, restore=state) as successor:
            writer.commit()
            assert sum(event.records for event in rest(successor) if isinstance(event, DataBlock)) == 400


@pytest.mark.parametrize("alignment", ["aligned", "unaligned", "aligned_with_timeout"])
def test_consumer_goes_back_to_its_materialization_and_the_producer_to_the_last_checkpoint(
    scene: Open, tmp_path: Path, alignment: str
) -> None:
    there = scene(log_dir=str(tmp_path), alignment=alignment, **EXACTLY)
    with there.reader() as reader:
        writer = there.writer()
        write(writer, range(10))
        writer.emit(Barrier(1))
        events = until(reader, Captured)
        materialized = captured(events)
        before = records_of(events[: events.index(Barrier(1, unaligned=alignment == "unaligned"))])
        write(writer, range(10, 20))
        writer.emit(Barrier(2))
        until(reader, Captured)
        last = writer.state(2, WAIT)
        write(writer, range(20, 30))
        writer.flush()
        until(reader, DataBlock)
        writer.abort()
    with (
        there.writer(attempt=1, restore=last) as again,
        there.reader(attempt=1, restore=materialized) as reader,
    ):
        write(again, range(last.records, 25))
        again.commit()
        assert before + records_of(rest(reader)) == data(*range(25))


def test_log_survives_its_process_and_its_application(scene: Open, tmp_path: Path) -> None:
    """A whole job that was killed is started again, under another name."""
    code = (
        "import sys, os, pickle\n"
        "from shuffle_api.ids import MapAttempt\n"
        "from shuffle_api.streaming import Barrier\n"
        "from shuffle_plugins.pipelined import PipelinedShuffle\n"
        "plugin = PipelinedShuffle({'guarantee': 'exactly_once', 'log_dir': sys.argv[1]})\n"
        "handle = plugin.master('killed').register_shuffle(1, 1)\n"
        "writer = plugin.writer(handle, MapAttempt(0, 0))\n"
        "for number in range(50): writer.write(0, b'%d' % number)\n"
        "writer.emit(Barrier(1))\n"
        "sys.stdout.buffer.write(pickle.dumps(writer.state(1, 120)))\n"
        "sys.stdout.flush()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    import pickle

    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, timeout=240)
    assert killed.returncode == -9
    state = pickle.loads(killed.stdout)
    assert state.records == 50
    there = scene(log_dir=str(tmp_path), guarantee="exactly_once")
    with there.writer(restore=state) as writer:
        write(writer, range(50, 60))
        writer.commit()
        with there.reader(restore=ReaderState.beginning(range(1), range(1))) as reader:
            assert records_of(rest(reader)) == data(*range(60))


def test_reader_that_does_not_say_begins_where_its_producer_goes_on(scene: Open, tmp_path: Path) -> None:
    there = scene(log_dir=str(tmp_path), **EXACTLY)
    with there.writer() as writer, there.reader() as reader:
        write(writer, range(5))
        writer.emit(Barrier(1))
        until(reader, Captured)
        state = writer.state(1, WAIT)
    with there.writer(attempt=1, restore=state) as writer, there.reader(attempt=1) as reader:
        write(writer, range(5, 8))
        writer.commit()
        assert records_of(rest(reader)) == data(5, 6, 7)


def test_bound_of_the_log_is_kept_and_what_it_lost_is_refused_by_name(scene: Open, tmp_path: Path) -> None:
    there = scene(log_dir=str(tmp_path), log_disk_bytes="1m", **EXACTLY)
    with there.writer() as writer, there.reader() as reader:
        writer.emit(Barrier(1))
        state = captured(until(reader, Captured))
        for _ in range(3000):
            writer.write(0, bytes(1000))
            until(reader, DataBlock)
        eventually(lambda: writer.statistics().log_disk_bytes <= 1 << 20)
        eventually(lambda: bytes_below(tmp_path) <= 2 << 20)
        eventually(lambda: writer.statistics().forgotten_blocks > 1000)
        reader.close()
        with (
            there.reader(attempt=1, restore=state) as successor,
            pytest.raises(InvalidArgument, match="log_disk_bytes"),
        ):
            rest(successor)


def bytes_below(root: Path) -> int:
    """What files take there, of which some may go meanwhile."""
    found = 0
    for path in root.rglob("*"):
        with suppress(FileNotFoundError):
            found += path.stat().st_blocks * 512
    return found


def test_acknowledged_checkpoint_deletes_from_the_log_on_disk(scene: Open, tmp_path: Path) -> None:
    there = scene(log_dir=str(tmp_path), log_disk_bytes="1m", **EXACTLY)
    with there.writer() as writer, there.reader() as reader:
        for _ in range(500):
            writer.write(0, bytes(1000))
        writer.emit(Barrier(1))
        until(reader, Captured)
        writer.state(1, WAIT)
        assert writer.statistics().log_disk_bytes > 500_000
        reader.acknowledge(1)
        eventually(lambda: writer.statistics().log_disk_bytes < 200_000)
        assert writer.statistics().forgotten_blocks == 0


def test_earlier_checkpoint_is_acknowledged_when_its_materialization_is_done(scene: Open, tmp_path: Path) -> None:
    there = scene(log_dir=str(tmp_path), **EXACTLY)
    with there.writer() as writer:
        with there.reader() as reader:
            states = {}
            for checkpoint in range(4):
                write(writer, [checkpoint])
                writer.emit(Barrier(checkpoint))
                states[checkpoint] = captured(until(reader, Captured))
            reader.acknowledge(1)
            eventually(lambda: writer.statistics().logged_bytes == 2 * len(b"size0"))
            with pytest.raises(InvalidArgument, match="checkpoint 0 was not captured here, or a later one"):
                reader.acknowledge(0)
        with (
            there.reader(attempt=1, restore=states[0]) as early,
            pytest.raises(InvalidArgument, match="was dropped"),
        ):
            rest(early)
        with there.reader(attempt=2, restore=states[1]) as reader:
            writer.commit()
            assert records_of(rest(reader)) == data(2, 3)


def test_reader_that_came_back_where_it_stood_leaves_the_log_to_its_successor(scene: Open) -> None:
    """Its position says what it has, not that nobody will need that again."""
    there = scene(guarantee="exactly_once")
    with there.writer() as writer:
        with there.reader() as reader:
            write(writer, range(3))
            writer.emit(Barrier(1))
            state = captured(until(reader, Captured))
            write(writer, range(3, 6))
            writer.emit(Barrier(2))
            later = captured(until(reader, Captured))
        with there.reader(attempt=1, restore=later) as reader:
            write(writer, [6])
            writer.flush()
            assert records_of(until(reader, DataBlock)) == data(6)
        with there.reader(attempt=2, restore=state) as reader:
            writer.commit()
            assert records_of(rest(reader)) == data(3, 4, 5, 6)


def test_disk_that_is_full_fails_checkpoints_and_not_the_stream(
    scene: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = scene(log_dir=str(tmp_path), **EXACTLY)

    def full(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwritev", full)
    with there.writer() as writer, there.reader() as reader:
        write(writer, range(5))
        writer.emit(Barrier(1))
        with pytest.raises(StorageFailed, match="No space left"):
            writer.state(1, WAIT)
        for _ in range(100):
            writer.write(0, bytes(1000))
        writer.commit()
        assert len(records_of(rest(reader))) == 105


@pytest.mark.parametrize("committed", [True, False])
def test_state_is_given_away_only_when_the_log_has_all_before_it(
    scene: Open, tmp_path: Path, committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = scene(log_dir=str(tmp_path), **EXACTLY)
    write_pieces, slow = os.pwritev, threading.Event()

    def wait(*arguments: Any) -> int:
        assert slow.wait(WAIT)
        return write_pieces(*arguments)

    with there.writer() as writer:
        monkeypatch.setattr(os, "pwritev", wait)
        write(writer, range(5))
        writer.commit() if committed else writer.emit(Barrier(1))
        with pytest.raises(DeadlineExceeded):
            writer.state(1, 0.1)
        slow.set()
        assert writer.state(1, WAIT).records == 5


def folder(handle: ShuffleHandle) -> str:
    """Where the logs of a shuffle lie, below its run's."""
    return f"{handle.spec.id.shuffle}.{handle.spec.id.generation}"


def test_logs_end_with_their_shuffle_and_stay_when_only_their_task_ends(scene: Open, tmp_path: Path) -> None:
    there = scene(log_dir=str(tmp_path), **EXACTLY)
    other = there.master.register_shuffle(1, 1)
    with PipelinedShuffle({"log_dir": str(tmp_path), "local": there.local, "linger": 0.0}) as task:
        for handle in (there.handle, other):
            writer = task.writer(handle, MapAttempt(0, 0))
            write(writer, range(5))
            writer.emit(Barrier(1))
            writer.state(1, WAIT)
    logs = list(tmp_path.glob("*/*/*"))
    assert len(logs) == 2
    with there.writer(attempt=1) as writer:
        write(writer, range(5))
        writer.flush()
        there.master.unregister_shuffle(there.handle)
        left = [path for path in logs if path.parent.name == folder(other)]
        eventually(lambda: [path for path in logs if path.exists()] == left)


def test_log_of_which_all_was_acknowledged_is_deleted(scene: Open, tmp_path: Path) -> None:
    there = scene(log_dir=str(tmp_path))
    with PipelinedShuffle({"log_dir": str(tmp_path), "local": there.local}) as task:
        with task.writer(there.handle, MapAttempt(0, 0)) as writer, there.reader() as reader:
            write(writer, range(5))
            writer.emit(Barrier(1))
            writer.state(1, WAIT)
            writer.commit()
            assert [record for _, record in reader] == data(*range(5))
            writer.drain(WAIT)
            assert list(tmp_path.glob("*/*/*"))
    assert not list(tmp_path.glob("*/*/*"))


def test_driver_deletes_the_logs_of_tasks_that_have_left(scene: Open, tmp_path: Path) -> None:
    there = scene(log_dir=str(tmp_path))
    other = there.master.register_shuffle(1, 1)
    with PipelinedShuffle({"log_dir": str(tmp_path), "local": there.local, "linger": 0.0}) as task:
        for handle in (there.handle, other):
            with task.writer(handle, MapAttempt(0, 0)) as writer:
                write(writer, range(5))
                writer.emit(Barrier(1))
                writer.state(1, WAIT)
    assert len(list(tmp_path.glob("*/*/*"))) == 2
    there.master.unregister_shuffle(there.handle)
    eventually(lambda: [path.parent.name for path in tmp_path.glob("*/*/*")] == [folder(other)])
    there.master.close()
    eventually(lambda: not list(tmp_path.iterdir()))
