"""Disks whose calls do not return: their directory is out, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.harness.files import files_below
from shuffle_api.caretaker import Caretaker
from shuffle_api.errors import DeadlineExceeded, MapOutputLost, Overloaded, ShuffleError, StorageFailed
from shuffle_api.ids import MapAttempt
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.server import MasterServer
from shuffle_server.store import calls as calls_module
from shuffle_server.store.calls import DiskCalls
from shuffle_server.store.object_store import ObjectStore
from shuffle_server.store.options import StoreOptions
from shuffle_server.store.store import Store
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.hung_disk import hang_below
from tests.shuffle_server.helpers import SPEC, batch, block, mounted_tmpfs, read_all, write_map

DEADLINE = 60.0
LIMIT = 1.0  # --disk-timeout


def eventually(seen: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + DEADLINE
    while not seen():
        assert time.monotonic() < give_up, what
        time.sleep(0.05)


def outputs_in(directory: Path) -> list[Path]:
    return [path for path in files_below(directory) if path.suffix == ".out"]


def command_of(root: Path, hung: str, role: str, *arguments: str, limit: float = LIMIT) -> list[str]:
    """Starts a role with the data directories `first` and `second`; calls below `hung` hang while `flag` exists."""
    command = [sys.executable, "-m", "tests.hung_disk", str(root / hung), str(root / "flag"), role, *arguments]
    return [*command, "--data-dir", f"{root / 'first'},{root / 'second'}", "--disk-timeout", f"{limit}"]


class HungServer:
    """A server with the data directories `first` and `second`. Calls below `hung` hang between `hang` and `go_on`.

    :param master: of the cluster that it joins as a worker.
    """

    def __init__(self, root: Path, hung: str, master: str = "", listen: str = "127.0.0.1:0") -> None:
        self.first, self.second, self._flag = root / "first", root / "second", root / "flag"
        role = ("worker", "--master", master, "--data-listen", listen) if master else ("server", "--listen", listen)
        more = () if master else ("--control-threads", "4")
        self._process = subprocess.Popen(command_of(root, hung, *role, *more), stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        names = dict(word.split("=") for word in self._process.stdout.readline().split()[1:])
        self.control, self.listens = master or names["control"], names["data"] if master else names["control"]
        self._client = ControlClient(self.control, client="test", timeout=DEADLINE)

    def hang(self) -> None:
        self._flag.touch()

    def go_on(self) -> None:
        self._flag.unlink(missing_ok=True)

    def out(self) -> list[str]:
        """Why its directories are out, of each."""
        give_up = time.monotonic() + DEADLINE
        while not (states := self._states()):  # a worker has sent no heartbeat yet
            assert time.monotonic() < give_up, "it sends one"
            time.sleep(0.05)
        return [disk.out for disk in states[0].disks]

    def _states(self) -> Sequence[pb.WorkerStatus]:
        reply: pb.StatusReply = self._client.call("Status", pb.StatusRequest())
        return reply.states

    def plugin(self, timeout: float = DEADLINE, retry: float = 0) -> RemoteShuffle:
        return RemoteShuffle({"server": self.control, "hand_over": "off", "timeout": timeout, "retry": retry})

    def stop(self) -> int:
        """By SIGTERM; the exit status."""
        self._client.close()
        self._process.terminate()
        self._process.communicate(timeout=DEADLINE)
        return self._process.returncode

    def close(self) -> None:
        self._client.close()
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def data_hangs(tmp_path: Path) -> Iterator[HungServer]:
    with mounted_tmpfs(tmp_path / "first", 64 << 20):  # it has less room: outputs go to the second
        server = HungServer(tmp_path, "second")
        yield server
        server.close()


@pytest.fixture
def journal_hangs(tmp_path: Path) -> Iterator[HungServer]:
    server = HungServer(tmp_path, "first/master")
    yield server
    server.close()


def test_a_directory_that_hangs_is_out_others_go_on_and_it_comes_back(data_hangs: HungServer) -> None:
    with data_hangs.plugin() as plugin, plugin.master("live") as master:
        data_hangs.hang()
        eventually(lambda: bool(data_hangs.out()[1]), "it is taken out")
        assert "has not returned" in data_hangs.out()[1]
        assert not data_hangs.out()[0]
        handle = master.register_shuffle(2, 8)
        written = [record for map_id in range(8) for record in write_map(plugin, handle, map_id)]
        assert read_all(plugin, handle) == sorted(written)
        data_hangs.go_on()
        eventually(lambda: not data_hangs.out()[1], "it is back")


def test_removal_and_the_next_run_wait_for_no_disk_that_hangs(data_hangs: HungServer) -> None:
    with data_hangs.plugin() as plugin, plugin.master("live") as live:
        seen = live.register_shuffle(1, 1)
        with plugin.master("etl") as first:
            handle = first.register_shuffle(1, 4)
            for map_id in range(4):
                write_map(plugin, handle, map_id)
            data_hangs.hang()
        for _ in range(6):  # more often than there are control threads
            with plugin.master("etl") as again:
                again.register_shuffle(1, 1)
                assert live.map_outputs(seen) == []
        data_hangs.go_on()
        eventually(lambda: not outputs_in(data_hangs.second), "the files are deleted later")


def test_outputs_of_a_directory_that_hangs_are_lost_and_written_again_elsewhere(data_hangs: HungServer) -> None:
    with data_hangs.plugin() as plugin, plugin.master("app") as master:
        handle = master.register_shuffle(1, 8)
        written = {map_id: write_map(plugin, handle, map_id) for map_id in range(8)}
        lost = {int(path.name.partition(".")[0]) for path in outputs_in(data_hangs.second)}
        assert lost == set(range(8))
        data_hangs.hang()
        eventually(lambda: bool(data_hangs.out()[1]), "it is taken out")
        for attempt in range(1, 20):
            try:
                found = read_all(plugin, handle)
                break
            except MapOutputLost as error:
                map_id = -1 if error.output is None else error.output.map
                written[map_id] = write_map(plugin, handle, map_id, attempt=attempt)
        assert found == sorted(record for records in written.values() for record in records)


def test_while_the_journal_hangs_changes_end_in_time_and_what_needs_no_disk_is_answered(
    journal_hangs: HungServer,
) -> None:
    with journal_hangs.plugin(timeout=10) as plugin, plugin.master("live") as live:
        seen = live.register_shuffle(1, 1)
        journal_hangs.hang()

        def register(number: int) -> type[ShuffleError] | None:
            try:
                live.register_shuffle(1, 1, shuffle=100 + number)
            except ShuffleError as error:
                return type(error)
            return None

        with ThreadPoolExecutor(12) as pool:
            under_way = [pool.submit(register, number) for number in range(12)]
            client = ControlClient(journal_hangs.control, client="test", timeout=DEADLINE)
            for _ in range(10):
                client.call("Heartbeat", pb.HeartbeatRequest(app=seen.spec.id.app))
                assert live.map_outputs(seen) == []
            client.close()
            assert {each.result(DEADLINE) for each in under_way} <= {DeadlineExceeded, Overloaded}
        journal_hangs.go_on()
        eventually(lambda: register(50) is None, "it goes on")


def test_a_worker_whose_first_directory_hangs_joins_again_after_it_was_given_up(
    master: MasterServer, tmp_path: Path
) -> None:
    flag, listen = tmp_path / "flag", ("--data-listen", "127.0.0.1:0")
    command = command_of(tmp_path, "first", "worker", "--master", master.control_address, *listen)
    membership = master._control.membership
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        RemoteShuffle({"server": master.control_address, "timeout": DEADLINE, "retry": DEADLINE}) as plugin,
    ):
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready ")
            [worker] = membership.records()
            flag.touch()
            eventually(lambda: any(disk.out for disk in membership.record(worker.info.id).status.disks), "it is out")
            membership.leave(worker.info.id, "a test")
            eventually(lambda: len(membership.records()) == 1, "the worker joins again")
            with plugin.master("app") as app:
                handle = app.register_shuffle(4, 1)
                assert write_map(plugin, handle, 0) == read_all(plugin, handle)
        finally:
            process.kill()


# ------------------------------------------------------------------------------------------ the parts


def test_calls_are_refused_while_the_directorys_own_does_not_return() -> None:
    calls = DiskCalls(Path("/data"), limit=0.05)
    with calls.own():
        eventually(lambda: bool(calls.hang), "it hangs")
        assert calls.slow or calls_module.SLOW_SECONDS > 0.05
        with pytest.raises(StorageFailed, match="/data: a call to the file system has not returned"), calls.request():
            pass
        calls.alive()
        assert not calls.hang
    with calls.request(), calls.request():
        pass
    assert not calls.hang


def test_no_more_calls_than_so_many_are_under_way_and_the_next_waits_until_one_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls_module, "MOST_CALLS", 2)
    calls, go, inside = DiskCalls(Path("/data"), limit=0.2), threading.Event(), threading.Semaphore(0)

    def call() -> None:
        with calls.request():
            inside.release()
            assert go.wait(DEADLINE)

    with ThreadPoolExecutor(3) as pool:
        two = [pool.submit(call) for _ in range(2)]
        for _ in two:
            assert inside.acquire(timeout=DEADLINE)
        with pytest.raises(StorageFailed, match="2 calls to the file system are under way"), calls.request():
            pass
        eventually(lambda: bool(calls.hang), "none of them returns")
        go.set()
        for each in two:
            each.result(DEADLINE)
    with calls.request():
        pass


class SetClock:
    """A source of time that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def run(self, seconds: float, look: Callable[[], object]) -> None:
        """Let so much time go by, with a look at what is measured several times a second."""
        for _ in range(round(10 * seconds)):
            self.now += 0.1
            look()


def test_a_process_that_stands_still_takes_no_call_for_one_that_hangs() -> None:
    clock = SetClock()
    calls = DiskCalls(Path("/data"), limit=1.0, source=clock)
    with calls.own(), calls.request():
        clock.now += 3600.0
        assert not calls.hang
        clock.run(1.0, lambda: calls.hang)
        assert calls.hang


def test_a_directory_that_is_busy_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "MOST_CALLS", 2)
    clock = SetClock()
    calls = DiskCalls(Path("/data"), limit=1.0, source=clock)

    def short() -> None:
        with calls.request():
            clock.run(0.5, lambda: calls.hang)

    with ThreadPoolExecutor(2) as pool, calls.request():  # a call that takes long, beside many that return
        for _ in range(8):
            pool.submit(short).result(DEADLINE)
            assert not calls.hang


def test_a_call_that_gets_no_turn_is_refused_as_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "MOST_CALLS", 1)
    clock = SetClock()
    calls, ended, go = DiskCalls(Path("/data"), limit=1.0, source=clock), threading.Event(), threading.Event()
    inside = threading.Semaphore(0)

    def wait_inside(over: threading.Event) -> None:
        with calls.request():
            inside.release()
            assert over.wait(DEADLINE)

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(wait_inside, ended)
        assert inside.acquire(timeout=DEADLINE)
        others = [pool.submit(wait_inside, go) for _ in range(2)]
        eventually(lambda: len(calls._changed._waiters) == 2, "two wait")  # type: ignore[attr-defined]
        clock.run(0.8, lambda: calls.hang)
        ended.set()  # the turn of one of the two
        first.result(DEADLINE)
        assert inside.acquire(timeout=DEADLINE)
        clock.run(0.5, lambda: calls.hang)
        eventually(lambda: any(each.done() for each in others), "the other one is refused")
        go.set()
        assert sorted(type(each.exception(DEADLINE)).__name__ for each in others) == ["NoneType", "Overloaded"]


def test_an_object_store_that_does_not_answer_says_nothing_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls_module, "MOST_CALLS", 2)
    tier = ObjectStore(f"file://{tmp_path}/tier", "w-1")
    store = Store(tmp_path / "worker", options=StoreOptions(disk_timeout=0.2), tier=tier)
    list(store.recover())
    store.start()
    cold, warm = SPEC, replace(SPEC, id=replace(SPEC.id, shuffle=SPEC.id.shuffle + 1))
    for spec, maps in ((cold, 3), (warm, 1)):
        store.add_shuffle(spec.id)
        for number in range(maps):
            writer = store.stage(spec, MapAttempt(number, 0), "none")
            writer.append(turn := writer.new_fencing_token(), batch([block(1, b"x")]))
            assert store.publish(writer, turn) is not None
        if spec is cold:
            assert store.evict_cold(0) == maps
    real, asked, go = tier.get, threading.Semaphore(0), threading.Event()

    def get(*arguments: Any) -> bool:
        asked.release()
        assert go.wait(DEADLINE)
        return real(*arguments)

    monkeypatch.setattr(tier, "get", get)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(store.open_output, cold.id, MapAttempt(number, 0)) for number in range(2)]
        for _ in waiting:
            assert asked.acquire(timeout=DEADLINE)
        with pytest.raises((Overloaded, StorageFailed), match="object store: 2 calls"):
            store.open_output(cold.id, MapAttempt(2, 0))
        assert not store.statistics().disks[0].out
        os.close(store.open_output(warm.id, MapAttempt(0, 0))[1])
        go.set()
        for each in waiting:
            os.close(each.result(DEADLINE)[1])
    os.close(store.open_output(cold.id, MapAttempt(2, 0))[1])
    store.close()


def test_a_caretaker_does_what_it_is_given_in_turn_and_survives_what_fails() -> None:
    done: list[int] = []
    caretaker = Caretaker("test")
    caretaker.later(lambda: done.append(0))
    assert done == [0]

    def fail() -> None:
        raise OSError("the disk")

    caretaker.start()
    for number in (1, 2):
        caretaker.later(fail)
        caretaker.later(lambda number=number: done.append(number))  # type: ignore[misc]
    assert caretaker.wait(DEADLINE)
    assert done == [0, 1, 2]
    caretaker.stop(DEADLINE)


def test_a_store_takes_new_outputs_elsewhere_and_refuses_those_that_hang(tmp_path: Path) -> None:
    flag, roots = tmp_path / "flag", [tmp_path / "a", tmp_path / "b"]
    store = Store(*roots, options=StoreOptions(disk_timeout=0.2))
    store.add_shuffle(SPEC.id)
    store.start()
    with hang_below(roots[0], flag):
        writer = store.stage(SPEC, MapAttempt(0, 0), "none")
        other = store.stage(SPEC, MapAttempt(1, 0), "none")
        hung, works = (writer, other) if writer.home.root == roots[0] else (other, writer)
        flag.touch()
        store.maintain(600.0, 0.0)
        eventually(lambda: bool(store.statistics().disks[0].out), "it is out")
        with pytest.raises(StorageFailed, match="has not returned"):
            hung.append(hung.new_fencing_token(), batch([block(0, b"x")]))
        works.append(turn := works.new_fencing_token(), batch([block(0, b"x")]))
        assert store.publish(works, turn) is not None
        assert store.stage(SPEC, hung.output, "none").home.root == roots[1]
        assert store.free_bytes() > 0
        flag.unlink()
        eventually(lambda: not store.statistics().disks[0].out, "it is back")
    store.close()
