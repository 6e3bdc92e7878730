"""Every periodic task of a real server, made to fail once: it is marked, it goes on, the mark is gone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shuffle_api import periodic
from shuffle_api.periodic import PeriodicTask
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.options import ServerOptions
from shuffle_server.server import MasterServer, WorkerServer
from tests.shuffle_server.helpers import read_all, write_map
from tests.shuffle_server.observe.helpers import get

DEADLINE = 120.0
LISTEN = "127.0.0.1:0"

# Beside them `metrics-http`, whose action lasts until the server ends.
TASKS = {
    "cold",
    "commit-deadline",
    "master-housekeeping",
    "membership",
    "merge",
    "snapshots",
    "upkeep",
    "worker-housekeeping",
}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[MasterServer, WorkerServer, str]]:
    """A master and a worker with all that they can do, and where the health of this process is asked."""
    (tmp_path / "bucket").mkdir()
    with ExitStack() as stack:
        master = MasterServer(ServerOptions(data_dir=str(tmp_path / "m"), listen=LISTEN, http_listen=LISTEN))
        stack.callback(master.stop)
        options = ServerOptions(
            data_dir=str(tmp_path / "w"),
            master=master.control_address,
            data_listen=LISTEN,
            tier=f"file://{tmp_path / 'bucket'}",
        )
        worker = WorkerServer(options)
        stack.callback(worker.stop)
        yield master, worker, dict(master.ready)["metrics"]


def await_tasks_check(address: str, name: str, *, ok: bool) -> None:
    """Return when /health says of the task `name` that it is `ok`."""
    deadline = time.monotonic() + DEADLINE
    while (f"{name} has failed" not in get(address, "/health").json()["checks"]["tasks"]["reason"]) is not ok:
        assert time.monotonic() < deadline, get(address, "/health").text
        time.sleep(0.01)


def fail_once(task: PeriodicTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task's next round raises; it is tried again a second later."""
    action = task._action
    broken = [RuntimeError(f"a bug in {task.name}")]

    def fails_once() -> float | None:
        if broken:
            raise broken.pop()
        return action()

    monkeypatch.setattr(task, "_action", fails_once)
    monkeypatch.setattr(task, "_retry", 1.0)
    task.wake()


def test_every_task_of_a_server_survives_what_nobody_expected(
    servers: tuple[MasterServer, WorkerServer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    master, _, health = servers
    with RemoteShuffle({"server": master.control_address, "timeout": 60, "retry": 60}) as plugin:
        with plugin.master("job") as job:
            handle = job.register_shuffle(4, 2)
            written = write_map(plugin, handle, 0)
            tasks = [task for task in periodic._TASKS.values() if task.name in TASKS]
            assert {task.name for task in tasks} == TASKS
            for task in tasks:
                fail_once(task, monkeypatch)
                await_tasks_check(health, task.name, ok=False)
                await_tasks_check(health, task.name, ok=True)
                assert task.state().failures == 1
                assert task.is_alive()
            assert get(health, "/health").status == 200
            written += write_map(plugin, handle, 1)
            assert read_all(plugin, handle) == sorted(written)


def test_a_worker_that_hands_over_survives_it_as_well(
    servers: tuple[MasterServer, WorkerServer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, worker, health = servers
    fail_once(worker._registries.all[0].drain._task, monkeypatch)
    worker._registries.all[0].drain.begin()
    await_tasks_check(health, "drain", ok=False)
    deadline = time.monotonic() + DEADLINE
    while not worker._registries.all[0].drain.done:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    await_tasks_check(health, "drain", ok=True)
