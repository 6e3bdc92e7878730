"""The registry's operation log: groups, full disks, failing disks."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from shuffle_api.errors import DeadlineExceeded, ShuffleError, ShuttingDown, StorageFailed
from shuffle_api.registry.encoding import Decoder, encode
from shuffle_api.registry.operations import Operation, RegisterApp
from shuffle_server.master.files import AppendFile, FlatDirectory, LocalDirectory
from shuffle_server.master.log import NoState, OperationLog, Place, log_name
from shuffle_server.master.recovery import recover
from shuffle_transport.frames import LOG, FrameFile
from tests.shuffle_server.helpers import fill, mounted_tmpfs
from tests.shuffle_server.master.simulated import SimulatedDirectory

TIMEOUT = 60.0


def operation(number: int, size: int = 0) -> RegisterApp:
    return RegisterApp(f"a{number}", "i", "x" * size)


def put(log: OperationLog, *operations: Operation) -> None:
    log.wait(log.append(b"".join(map(encode, operations)), operations))


def frames(directory: FlatDirectory, lsn: int = 1) -> Iterator[list[Operation]]:
    with FrameFile(directory, log_name(lsn), LOG) as file:
        for frame in file.frames():
            assert frame.lsn == lsn
            yield (found := list(Decoder().decode(frame.payload)))
            lsn += len(found)


def logged(directory: FlatDirectory, lsn: int = 1) -> list[Operation]:
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

    slow = failing = False

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
        if self._directory.failing:
            self._directory.failing = False
            raise OSError(errno.EIO, "Input/output error")
        self._file.sync()


def test_all_that_wait_during_a_sync_share_the_next_one(tmp_path: Path) -> None:
    directory = SlowDirectory(tmp_path)
    log = OperationLog(directory, 0, 1, sync=True)
    directory.slow = True
    first = threading.Thread(target=put, args=(log, operation(0)))
    first.start()
    assert directory.begun.acquire(timeout=TIMEOUT)
    places = [log.append(encode(operation(n)), [operation(n)]) for n in range(1, 20)]
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
    log.append(encode(operation(0)), [operation(0)])
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
    log.append(encode(operation(1)), [operation(1)])
    place = log.switch()
    put(log, operation(2))
    assert log.wait(place) == 1
    assert logged(directory) == [operation(1)]
    assert logged(directory, 2) == [operation(2)]
    log.close()


def test_when_no_new_file_can_be_made_the_old_one_stays_in_use() -> None:
    directory = SimulatedDirectory()
    log = OperationLog(directory, 0, 1, sync=True)
    put(log, operation(0))
    directory.room = 0
    assert log.wait(log.switch()) is None
    directory.room = 10_000
    put(log, operation(1))
    assert logged(directory) == [operation(0), operation(1)]
    log.close()


@pytest.mark.parametrize("steps", range(1, 6))
def test_a_new_file_that_may_not_last_is_not_there_for_a_recovery_to_go_on_in(steps: int) -> None:
    directory = SimulatedDirectory()
    log = OperationLog(directory, 0, 1, sync=True)
    put(log, operation(0))
    directory.fail_at = {directory.steps + steps}
    log.wait(log.switch())
    put(log, operation(1))
    log.close()
    registry = recover(directory.after_power_cut()).registry
    assert [each.app for each in registry.apps()] == ["a0", "a1"]


def test_a_file_without_operations_is_not_replaced() -> None:
    directory = SimulatedDirectory()
    log = OperationLog(directory, 0, 1, sync=True)
    before = directory.steps
    assert log.wait(log.switch()) == 0
    assert directory.steps == before
    log.close()


def test_what_a_full_disk_refuses_is_never_written_and_the_rest_is_in_order(tmp_path: Path) -> None:
    with mounted_tmpfs(tmp_path / "small", 1 << 20) as root:
        log = OperationLog(LocalDirectory(root), 0, 1, sync=True)
        ballast = fill(root)
        taken: list[Operation] = []
        refused: list[str] = []
        for n in range(100):
            if n == 50:
                ballast.unlink()
            try:
                put(log, operation(n, 1000))
                taken.append(operation(n, 1000))
            except StorageFailed as error:
                refused.append(error.message)
        assert refused
        assert all("No space left" in message for message in refused)
        assert taken[-1] == operation(99, 1000)
        assert not log.failing
        assert logged(LocalDirectory(root)) == taken
        log.close()
        assert logged(LocalDirectory(root)) == taken


class Reverts(NoState):
    """Counts how often the state went back to what is durable."""

    count = 0

    def revert(self) -> None:
        self.count += 1


def test_what_waits_behind_a_refused_operation_is_refused_with_it(tmp_path: Path) -> None:
    directory, state = SlowDirectory(tmp_path), Reverts()
    log = OperationLog(directory, 0, 1, sync=True, state=state)
    directory.slow = True
    places = [log.append(encode(operation(0)), [operation(0)])]
    with waiting(log, places[0]):
        _refuse_those_behind(log, directory, places)
    for place in places:
        with pytest.raises(StorageFailed):
            log.wait(place)
    assert state.count == 1
    assert log.barrier() is None
    directory.failing = False
    put(log, operation(9))
    log.close()
    assert [each for found in map(list, frames(directory)) for each in found] == [operation(9)]


def _refuse_those_behind(log: OperationLog, directory: SlowDirectory, places: list[Place]) -> None:
    assert directory.begun.acquire(timeout=TIMEOUT)
    directory.failing = True
    places += [log.append(encode(operation(n)), [operation(n)]) for n in range(1, 4)]
    directory.slow = False
    directory.go.release()


@contextmanager
def waiting(log: OperationLog, place: Place) -> Iterator[None]:
    """Another thread waits for an operation, and writes it."""

    def wait() -> None:
        with suppress(ShuffleError):
            log.wait(place)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    yield
    thread.join(TIMEOUT)
    assert not thread.is_alive()


def test_a_wait_for_a_disk_that_hangs_has_an_end_and_only_the_one_that_writes_is_stuck(tmp_path: Path) -> None:
    directory = SlowDirectory(tmp_path)
    log = OperationLog(directory, 0, 1, sync=True, timeout=0.2)
    directory.slow = True
    first = log.append(encode(operation(0)), [operation(0)])
    with waiting(log, first):
        assert directory.begun.acquire(timeout=TIMEOUT)
        behind = log.append(encode(operation(1)), [operation(1)])
        for place in (first, behind, behind):
            with pytest.raises(DeadlineExceeded, match="took more than"):
                log.wait(place)
        directory.slow = False
        directory.go.release()
    put(log, operation(2))
    log.close()
    assert [each for found in map(list, frames(directory)) for each in found] == [operation(n) for n in range(3)]


def test_after_a_failed_sync_the_log_begins_again_and_what_was_refused_is_not_found() -> None:
    directory = SimulatedDirectory()
    log = OperationLog(directory, 0, 1, sync=True)
    put(log, operation(0))
    directory.fail_at = {directory.steps + 2}  # a write, then its sync
    with pytest.raises(StorageFailed, match="Input/output error"):
        put(log, operation(1))
    assert log.given_up is None
    put(log, operation(2))
    assert [name for name in directory.names() if name.startswith("snapshot")] == ["snapshot-0000000000000001"]
    assert logged(directory.after_power_cut(), 2) == [operation(2)]
    log.close()


def test_while_it_cannot_begin_again_nobody_is_told_what_became_of_the_operations() -> None:
    directory = SimulatedDirectory()
    log = OperationLog(directory, 0, 1, sync=True)
    put(log, operation(0))
    directory.failing_sync = True
    for _ in range(2):
        with pytest.raises(DeadlineExceeded, match=r"is not trusted: Input/output error") as caught:
            put(log, operation(1))
        assert log.given_up is caught.value
    assert logged(directory.after_power_cut())[:1] == [operation(0)]
    directory.failing_sync = False
    put(log, operation(2))
    assert log.given_up is None
    assert logged(directory.after_power_cut(), 2) == [operation(2)]
    log.close()


def test_a_closed_log_takes_nothing() -> None:
    log = OperationLog(SimulatedDirectory(), 0, 1, sync=True)
    log.close()
    with pytest.raises(ShuttingDown):
        put(log, operation(0))
