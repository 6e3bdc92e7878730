"""The registry's operation log: groups, full disks, failing disks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shuffle_api.errors import ShuttingDown, StorageFailed
from shuffle_api.registry.encoding import Decoder, encode
from shuffle_api.registry.operations import Operation, RegisterApp
from shuffle_server.master.files import AppendFile, Directory, LocalDirectory
from shuffle_server.master.log import OperationLog, log_name
from shuffle_transport.frames import LOG, FrameFile
from tests.shuffle_server.helpers import fill, mounted_tmpfs
from tests.shuffle_server.master.simulated import SimulatedDirectory

TIMEOUT = 60.0


def operation(number: int, size: int = 0) -> RegisterApp:
    return RegisterApp(f"a{number}", "i", "x" * size)


def put(log: OperationLog, *operations: Operation) -> None:
    log.wait(log.append(b"".join(map(encode, operations)), len(operations)))


def frames(directory: Directory, lsn: int = 1) -> Iterator[list[Operation]]:
    with FrameFile(directory, log_name(lsn), LOG) as file:
        for frame in file.frames():
            assert frame.lsn == lsn
            yield (found := list(Decoder().decode(frame.payload)))
            lsn += len(found)


def logged(directory: Directory, lsn: int = 1) -> list[Operation]:
    return [each for found in frames(directory, lsn) for each in found]


def test_operations_are_there_in_order_when_they_are_acknowledged() -> None:
    directory = SimulatedDirectory()
    log = OperationLog(directory, 0, 1, sync=True)
    for n in range(5):
        put(log, operation(n))
        assert logged(directory.after_power_cut()) == [operation(i) for i in range(n + 1)]
    log.close()


def test_without_sync_they_survive_the_process() -> None:
    directory = SimulatedDirectory()
    log = OperationLog(directory, 0, 1, sync=False)
    before = directory.steps
    put(log, operation(0))
    assert directory.steps == before + 1
    assert logged(directory.after_process_crash()) == [operation(0)]
    log.close()


class SlowDirectory(LocalDirectory):
    """Whose files' syncs wait for a permit each, once `slow`."""

    slow = False

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.begun, self.go, self.syncs = threading.Semaphore(0), threading.Semaphore(0), 0

    def create(self, name: str) -> AppendFile:
        return SlowFile(self, super().create(name))


class SlowFile:
    def __init__(self, directory: SlowDirectory, file: AppendFile) -> None:
        self._directory, self._file = directory, file
        self.write, self.truncate, self.close = file.write, file.truncate, file.close

    def sync(self) -> None:
        if self._directory.slow:
            self._directory.syncs += 1
            self._directory.begun.release()
            assert self._directory.go.acquire(timeout=TIMEOUT)
        self._file.sync()


def test_all_that_wait_during_a_sync_share_the_next_one(tmp_path: Path) -> None:
    directory = SlowDirectory(tmp_path)
    log = OperationLog(directory, 0, 1, sync=True)
    directory.slow = True
    first = threading.Thread(target=put, args=(log, operation(0)))
    first.start()
    assert directory.begun.acquire(timeout=TIMEOUT)
    places = [log.append(encode(operation(n)), 1) for n in range(1, 20)]
    waiters = [threading.Thread(target=log.wait, args=(place,)) for place in places]
    for waiter in waiters:
        waiter.start()
    directory.go.release(2)
    for thread in (first, *waiters):
        thread.join(TIMEOUT)
    assert directory.syncs == 2
    assert [len(found) for found in frames(directory)] == [1, 19]
    directory.slow = False
    log.close()


def test_a_barrier_waits_for_what_others_have_appended_and_costs_nothing_after(tmp_path: Path) -> None:
    directory = SimulatedDirectory()
    log = OperationLog(directory, 0, 1, sync=True)
    assert log.barrier() is None
    log.append(encode(operation(0)), 1)
    log.wait(log.barrier())
    assert logged(directory.after_power_cut()) == [operation(0)]
    assert log.barrier() is None
    log.close()


def test_operations_that_go_together_are_one_frame() -> None:
    directory = SimulatedDirectory()
    log = OperationLog(directory, 0, 1, sync=True)
    put(log, *map(operation, range(30)))
    put(log, operation(30))
    assert [len(found) for found in frames(directory)] == [30, 1]
    log.close()


def test_a_switch_divides_the_operations_exactly_where_it_was_asked_for() -> None:
    directory = SimulatedDirectory()
    log = OperationLog(directory, 0, 1, sync=True)
    log.append(encode(operation(1)), 1)
    place = log.switch()
    put(log, operation(2))
    assert log.wait(place) == 1
    assert logged(directory) == [operation(1)]
    assert logged(directory, 2) == [operation(2)]
    log.close()


def test_when_no_new_file_can_be_made_the_old_one_stays_in_use() -> None:
    directory = SimulatedDirectory()
    log = OperationLog(directory, 0, 1, sync=True)
    directory.room = 0
    assert log.wait(log.switch()) is None
    directory.room = 10_000
    put(log, operation(1))
    assert logged(directory) == [operation(1)]
    log.close()


def test_a_full_disk_leaves_no_half_frame_and_all_is_written_in_order_when_there_is_room(tmp_path: Path) -> None:
    with mounted_tmpfs(tmp_path / "small", 1 << 20) as root:
        log = OperationLog(LocalDirectory(root), 0, 1, sync=True)
        ballast = fill(root)
        refused = 0
        for n in range(100):
            try:
                put(log, operation(n, 1000))
            except StorageFailed:
                refused += 1
        assert refused
        with pytest.raises(StorageFailed, match="No space left"):
            log.wait(log.barrier())
        assert logged(LocalDirectory(root)) == [operation(n, 1000) for n in range(100 - refused)]
        ballast.unlink()
        log.wait(log.barrier())
        log.close()
        assert logged(LocalDirectory(root)) == [operation(n, 1000) for n in range(100)]


def test_after_a_failed_sync_nothing_is_acknowledged_any_more() -> None:
    directory = SimulatedDirectory()
    log = OperationLog(directory, 0, 1, sync=True)
    put(log, operation(0))
    directory.failing_sync = True
    with pytest.raises(StorageFailed, match="Input/output error") as caught:
        put(log, operation(1))
    assert "start the master again" in caught.value.remedy
    directory.failing_sync = False
    with pytest.raises(StorageFailed, match="not trusted any more"):
        put(log, operation(2))
    with pytest.raises(StorageFailed):
        log.wait(log.barrier())
    assert logged(directory.after_power_cut())[:1] == [operation(0)]


def test_a_closed_log_takes_nothing() -> None:
    log = OperationLog(SimulatedDirectory(), 0, 1, sync=True)
    log.close()
    with pytest.raises(ShuttingDown):
        put(log, operation(0))
