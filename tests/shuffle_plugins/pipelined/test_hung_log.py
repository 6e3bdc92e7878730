"""A `log_dir` whose disk hangs: it costs checkpoints, and holds up neither streams nor the registry."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from shuffle_api.clock import LOOK_SHARE
from shuffle_api.errors import DeadlineExceeded, StorageFailed, UnknownShuffle
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from shuffle_api.periodic import aside
from shuffle_api.records import unpack_records
from shuffle_api.streaming import Barrier, Captured, ReaderState
from shuffle_plugins.pipelined import DataBlock, PipelinedReader, PipelinedShuffle, PipelinedWriter
from shuffle_plugins.pipelined import log_directory as log_directory_module
from shuffle_plugins.pipelined import subpartition_view as view_module
from shuffle_plugins.pipelined.entries import PayloadFile
from shuffle_plugins.pipelined.in_flight_log import DiskWatch
from tests import hung_disk
from tests.shuffle_plugins.pipelined.conftest import Open
from tests.shuffle_plugins.pipelined.scene import WAIT, Scene, data, records_of, rest, until, write
from tests.shuffle_plugins.pipelined.test_checkpoints import captured
from tests.shuffle_plugins.pipelined.test_in_flight_log import bytes_of, eventually

T = TypeVar("T")
LIMIT = 0.5  # after which a call hangs


class HungLog:
    """The directory of the logs. Calls below it hang between `hang` and `go_on`."""

    def __init__(self, root: Path) -> None:
        self.path, self._flag = root / "log", root / "flag"
        self.path.mkdir()
        self.options: dict[str, OptionValue] = {
            "log_dir": str(self.path),
            "guarantee": "exactly_once",
            "block_bytes": 1000,
            "log_bytes": 0,
        }
        self.below = hung_disk.hang_below(self.path, self._flag)

    def hang(self) -> None:
        self._flag.touch()

    def go_on(self) -> None:
        self._flag.unlink(missing_ok=True)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scene: Open) -> Iterator[HungLog]:
    """Depends on `scene`, whose plugins are closed after the disk goes on."""
    monkeypatch.setattr(log_directory_module, "HANG_SHARE", LIMIT / WAIT)
    disk = HungLog(tmp_path)
    with disk.below:
        yield disk
        disk.go_on()


def soon(call: Callable[[], T]) -> T:
    """What a call returns that waits for no disk."""
    return aside("test", call).result(WAIT)


def write_before_and_after(there: Scene, disk: HungLog, writer: PipelinedWriter) -> None:
    """The log has a checkpoint, and its thread hangs with what comes next."""
    write(writer, range(10))
    writer.emit(Barrier(1))
    writer.state(1, WAIT)
    disk.hang()
    write(writer, range(10, 20))
    writer.emit(Barrier(2))


def test_other_shuffles_go_on_while_the_log_of_one_hangs(scene: Open, disk: HungLog) -> None:
    there = scene(**disk.options)
    other = there.master.register_shuffle(1, 1)
    write_before_and_after(there, disk, there.writer())
    soon(lambda: there.master.unregister_shuffle(there.handle))
    assert soon(lambda: there.master.map_outputs(other)) == []
    fresh = soon(lambda: there.master.register_shuffle(1, 1))
    for handle in (other, fresh):
        with (
            there.plugin.writer(handle, MapAttempt(0, 0)) as writer,
            there.plugin.reader(handle, range(1)) as reader,
        ):
            write(writer, range(100))
            writer.commit()
            assert records_of(rest(reader)) == data(*range(100))
    soon(there.master.close)
    disk.go_on()
    eventually(lambda: not list(disk.path.iterdir()))


def test_log_fails_and_the_stream_goes_on(scene: Open, disk: HungLog) -> None:
    there = scene(**{**disk.options, "queue_bytes": 20_000})
    with there.writer() as writer, there.reader() as reader:
        write_before_and_after(there, disk, writer)
        with pytest.raises(StorageFailed, match=rf"in {disk.path}.* has not returned for .* limit is {LIMIT:g} s"):
            soon(lambda: writer.state(2, WAIT))
        reading = aside("test", lambda: records_of(rest(reader)))
        records = [bytes([n]) * 1000 for n in range(100)]  # five times what may wait for the disk
        for record in records:
            soon(lambda record=record: writer.write(0, record))  # type: ignore[misc]
        writer.commit()
        assert reading.result(WAIT) == [*data(*range(20)), *records]


def test_write_that_waits_for_the_log_goes_on_when_that_fails(scene: Open, disk: HungLog) -> None:
    there = scene(**{**disk.options, "queue_bytes": 20_000})
    with there.writer() as writer, there.reader() as reader:
        write_before_and_after(there, disk, writer)
        reading = aside("test", lambda: records_of(rest(reader)))
        for _ in range(100):
            writer.write(0, bytes(1000))
        writer.commit()
        assert len(reading.result(WAIT)) == 120


def test_state_that_comes_too_late_names_the_log(scene: Open, disk: HungLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_directory_module, "HANG_SHARE", 0.5)
    there = scene(**disk.options)
    with there.writer() as writer:
        write_before_and_after(there, disk, writer)
        with pytest.raises(DeadlineExceeded, match=rf"in {disk.path}.* has not stored barrier 2 .* within 0.1 s"):
            writer.state(2, 0.1)
        disk.go_on()
        assert writer.state(2, WAIT).records == 20


def test_writer_and_plugin_end_while_the_disk_hangs(
    scene: Open, disk: HungLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_directory_module, "CLOSE_SECONDS", 0.2)
    there = scene(**disk.options)
    with PipelinedShuffle({**disk.options, "local": there.local, "linger": 0.0}) as task:
        writer = task.writer(there.handle, MapAttempt(0, 0))
        write_before_and_after(there, disk, writer)
        soon(writer.abort)
        soon(task.close)
    assert f"in-flight logs below {disk.path} have not been closed and removed within 0.2 s" in caplog.text
    soon(lambda: there.master.unregister_shuffle(there.handle))
    disk.go_on()
    eventually(lambda: not list(disk.path.iterdir()))


def test_committed_writer_of_a_closed_plugin_holds_up_no_registry(scene: Open, disk: HungLog) -> None:
    there = scene(**disk.options)
    with PipelinedShuffle({**disk.options, "local": there.local, "linger": 0.0}) as task:
        with task.writer(there.handle, MapAttempt(0, 0)) as writer:
            write(writer, range(10))
            writer.emit(Barrier(1))
            writer.state(1, WAIT)
            writer.commit()
    disk.hang()
    soon(lambda: there.master.unregister_shuffle(there.handle))
    soon(lambda: there.master.register_shuffle(1, 1))
    disk.go_on()
    eventually(lambda: not list(disk.path.iterdir()))


def test_task_of_another_process_is_told_by_a_thread_that_waits_for_no_disk(scene: Open, disk: HungLog) -> None:
    there = scene(**disk.options)
    other = there.master.register_shuffle(1, 1)
    with PipelinedShuffle({**disk.options, "local": there.local, "linger": 0.0}) as task:
        writer = task.writer(there.handle, MapAttempt(0, 0))
        write_before_and_after(there, disk, writer)
        there.master.unregister_shuffle(there.handle)

        def ended() -> bool:
            try:
                writer.write(0, b"after the end")
            except UnknownShuffle:
                return True
            return False

        eventually(ended)
        with task.writer(other, MapAttempt(0, 0)) as live, task.reader(other, range(1)) as reader:
            write(live, range(5))
            live.commit()
            assert records_of(rest(reader)) == data(*range(5))
        disk.go_on()
    eventually(lambda: not (disk.path / there.handle.spec.id.app / "0").exists())


def test_writer_whose_parent_log_hangs_is_refused_by_name(scene: Open, disk: HungLog) -> None:
    there = scene(**disk.options)
    with there.writer() as writer:
        write(writer, range(10))
        writer.emit(Barrier(1))
        state = writer.state(1, WAIT)
    disk.hang()
    with pytest.raises(StorageFailed, match=rf"{state.log} is not read: nothing has come of it for {LIMIT:g} s"):
        soon(lambda: there.writer(attempt=1, restore=state))
    disk.go_on()
    with there.writer(attempt=1, restore=state) as again, there.reader(restore=beginning()) as reader:
        again.commit()
        assert records_of(rest(reader)) == data(*range(10))


def beginning() -> ReaderState:
    return ReaderState.beginning(range(1), range(1))


RECORDS = [bytes([n]) * 1000 for n in range(50)]


def replayed(there: Scene, writer: PipelinedWriter) -> ReaderState:
    """A checkpoint from which a reader is replayed to by files alone."""
    with there.reader() as reader:
        writer.emit(Barrier(1))
        state = captured(until(reader, Captured))
        for record in RECORDS:
            writer.write(0, record)
        assert bytes_of(reader, len(RECORDS)) == RECORDS
    eventually(lambda: writer.statistics().logged_bytes == 0)
    return state


def test_reader_of_a_file_that_hangs_waits_in_time_and_goes_on_with_the_disk(scene: Open, disk: HungLog) -> None:
    there = scene(**disk.options)
    with there.writer() as writer:
        state = replayed(there, writer)
        disk.hang()
        with there.reader(attempt=1, restore=state) as reader:
            with pytest.raises(DeadlineExceeded):
                soon(lambda: reader.poll(1.0))
            disk.go_on()
            assert bytes_of(reader, len(RECORDS)) == RECORDS
            disk.hang()
        with there.reader(attempt=2, restore=state) as reader:
            soon(reader.close)
        with there.reader(attempt=3, restore=state) as reader:
            with pytest.raises(DeadlineExceeded):
                soon(lambda: reader.poll(1.0))
            soon(writer.abort)
            disk.go_on()


def test_reader_gets_the_name_of_a_file_that_hangs(scene: Open, disk: HungLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "REPLAY_SECONDS", LIMIT)
    there = scene(**disk.options)
    with there.writer() as writer:
        state = replayed(there, writer)
        disk.hang()
        with (
            there.reader(attempt=1, restore=state) as reader,
            pytest.raises(StorageFailed, match=rf"{disk.path}.* has not been read within {LIMIT:g} s"),
        ):
            soon(lambda: until_data(reader))
        disk.go_on()
        with there.reader(attempt=2, restore=state) as reader:
            assert bytes_of(reader, len(RECORDS)) == RECORDS


def until_data(reader: PipelinedReader) -> None:
    until(reader, DataBlock)


def test_state_with_blocks_in_files_is_made_outside_the_lock(
    scene: Open, disk: HungLog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(hung_disk, "CALLS", ("stat", "pread", "preadv"))
    flag = tmp_path / "reads hang"
    with hung_disk.hang_below(disk.path, flag):
        check_state_outside_the_lock(scene(**{**disk.options, "alignment": "unaligned"}), flag)


def check_state_outside_the_lock(there: Scene, flag: Path) -> None:
    writer = there.writer()
    state = replayed(there, writer)
    flag.touch()
    with there.reader(attempt=1, restore=state) as reader:
        with pytest.raises(DeadlineExceeded):
            soon(lambda: reader.poll(0.5))
        writer.emit(Barrier(2))  # it overtakes what waits for the disk
        with pytest.raises(DeadlineExceeded, match="has not returned the blocks that barrier 2 overtook within 0.5 s"):
            soon(lambda: writer.state(2, 0.5))
        made = aside("test", lambda: writer.state(2, WAIT))
        soon(writer.statistics)
        flag.unlink()
        assert [list(unpack_records(block.payload)) for block in made.result(WAIT).blocks] == [[one] for one in RECORDS]
        flag.touch()
        made = aside("test", lambda: writer.state(2, WAIT))
        soon(lambda: there.master.unregister_shuffle(there.handle))
        flag.unlink()
        assert len(made.result(WAIT).blocks) == len(RECORDS)


PROGRAM = """
import sys
from pathlib import Path
from shuffle_api.ids import MapAttempt
from shuffle_api.streaming import Barrier
from shuffle_plugins.pipelined import PipelinedShuffle
from tests.hung_disk import hang_below

root, flag = Path(sys.argv[1]), Path(sys.argv[2])
hang_below(root, flag).__enter__()
plugin = PipelinedShuffle({"log_dir": str(root), "linger": 0})
master = plugin.master("app")
handle = master.register_shuffle(1, 1)
writer = plugin.writer(handle, MapAttempt(0, 0))
writer.write(0, b"x")
writer.emit(Barrier(1))
writer.state(1, 60)
flag.touch()
writer.write(0, b"y")
writer.flush()
master.unregister_shuffle(handle)
print("done", flush=True)
"""


def test_process_ends_while_its_log_hangs(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "log"), str(tmp_path / "flag")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr


def test_file_is_closed_by_one_that_may_wait(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    given: list[Callable[[], object]] = []
    file = PayloadFile(tmp_path / "file", fd := os.open(tmp_path / "file", os.O_RDONLY), given.append)
    del file
    os.fstat(fd)
    [close] = given
    close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_time_in_which_the_process_stands_still_is_not_the_disks() -> None:
    clock = Clock()
    watch = DiskWatch(10.0, clock)
    with watch.call():
        assert watch.hung() == 0.0
        clock.now += 3600.0
        assert watch.hung() == 0.0
        for _ in range(4):
            clock.now += LOOK_SHARE * 10.0
            found = watch.hung()
        assert found >= 10.0
        watch.returned()
        assert watch.hung() == 0.0
    clock.now += 3600.0
    assert watch.hung() == 0.0
