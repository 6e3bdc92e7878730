"""/health and /ready: a server that is not well is restarted, one that is not ready gets no new work."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shuffle_api.errors import DeadlineExceeded, StorageFailed
from shuffle_api.periodic import PeriodicTask
from shuffle_api.registry.operations import LoseWorker, RegisterApp
from shuffle_server.observe import figures, health
from shuffle_server.observe.health import WriteProbe
from shuffle_server.observe.observation import Observation
from tests.shuffle_server.helpers import fill, mounted_tmpfs
from tests.shuffle_server.master.simulated import SimulatedDirectory
from tests.shuffle_server.observe.conftest import Parts, parts_in
from tests.shuffle_server.observe.helpers import Answer, get

Attach = Callable[[Parts], Observation]


@pytest.fixture(autouse=True)
def _every_look_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PROBE_SECONDS", 0.0)


def test_a_server_is_well_but_not_ready_while_it_starts(observation: Observation) -> None:
    assert get(observation.address, "/health").status == 200
    ready = get(observation.address, "/ready")
    assert ready.status == 503
    assert "starting" in ready.failed()["accepting"]


def test_a_started_server_is_ready_until_it_stops(parts: Parts, attach: Attach) -> None:
    observation = attach(parts)
    ready = get(observation.address, "/ready")
    assert (ready.status, ready.content_type, ready.failed()) == (200, "application/json", {})
    assert ready.json()["status"] == "ok"
    observation.stopping()
    ready = get(observation.address, "/ready")
    assert (ready.status, ready.json()["status"]) == (503, "failed")
    assert "stopping" in ready.failed()["accepting"]
    assert get(observation.address, "/health").status == 200


def look(parts: Parts) -> None:
    """What housekeeping does every few seconds."""
    assert parts.sources.worker is not None
    parts.sources.worker.store.look()


def test_a_full_disk_is_not_ready_and_not_ill(tmp_path: Path, attach: Attach) -> None:
    with mounted_tmpfs(tmp_path / "small", 4 << 20) as root, parts_in(root) as parts:
        observation = attach(parts)
        assert get(observation.address, "/ready").status == 200
        ballast = fill(root)
        look(parts)
        ready = get(observation.address, "/ready")
        assert ready.status == 503
        assert sorted(ready.failed()) == ["disk", "journal"]
        assert str(root) in ready.failed()["disk"]
        assert "No space left" in ready.failed()["journal"]
        well = get(observation.address, "/health")
        assert well.status == 200
        assert "No space left" in well.json()["checks"]["journal"]["reason"]
        ballast.unlink()
        look(parts)
        assert get(observation.address, "/ready").status == 200


def test_a_journal_that_cannot_be_written_is_ill(parts: Parts, attach: Attach) -> None:
    observation = attach(parts)
    shutil.rmtree(parts.journal_dir)
    for path in ("/health", "/ready"):
        answer = get(observation.address, path)
        assert answer.status == 503
        assert str(parts.journal_dir) in answer.failed()["journal"]


def test_a_log_without_room_is_not_ready_until_an_operation_found_room(tmp_path: Path, attach: Attach) -> None:
    directory = SimulatedDirectory()
    with parts_in(tmp_path, directory) as parts:
        observation = attach(parts)
        directory.room = 0
        with pytest.raises(StorageFailed):
            parts.master.apply(RegisterApp("a", "run", ""))
        ready = get(observation.address, "/ready")
        assert (ready.status, list(ready.failed())) == (503, ["journal"])
        assert "was refused" in ready.failed()["journal"]
        assert get(observation.address, "/health").status == 200
        directory.room = 1 << 20
        parts.master.apply(RegisterApp("b", "run", ""))
        assert get(observation.address, "/ready").status == 200


def test_a_log_that_is_not_trusted_is_ill(tmp_path: Path, attach: Attach) -> None:
    directory = SimulatedDirectory()
    with parts_in(tmp_path, directory) as parts:
        observation = attach(parts)
        directory.failing_sync = True
        with pytest.raises(DeadlineExceeded):
            parts.master.apply(RegisterApp("a", "run", ""))
        for path in ("/health", "/ready"):
            answer = get(observation.address, path)
            assert answer.status == 503
            assert "is not trusted" in answer.failed()["journal"]


def test_a_worker_that_the_master_gave_up_is_not_ready(parts: Parts, attach: Attach) -> None:
    observation = attach(parts)
    parts.master.apply(LoseWorker(parts.worker_id, "silent"))
    ready = get(observation.address, "/ready")
    assert (ready.status, list(ready.failed())) == (503, ["registered"])
    assert parts.worker_id in ready.failed()["registered"]
    assert get(observation.address, "/health").status == 200


def test_a_master_that_does_not_answer_is_ill_and_hangs_nobody(
    parts: Parts, attach: Attach, monkeypatch: pytest.MonkeyPatch
) -> None:
    observation = attach(parts)
    monkeypatch.setattr(figures, "LOCK_SECONDS", 0.05)
    with parts.master.lock:
        well = get(observation.address, "/health")
        assert (well.status, list(well.failed())) == (503, ["registry"])
        assert "busy" in well.failed()["registry"]
        assert "flight_shuffle_ready 0.0" in get(observation.address, "/metrics").text
    assert get(observation.address, "/health").status == 200


def test_a_server_is_ill_while_a_task_fails(parts: Parts, attach: Attach) -> None:
    observation = attach(parts)
    broken = threading.Event()
    broken.set()

    def tidy() -> None:
        if broken.is_set():
            raise RuntimeError("a bug")

    def await_status(status: int) -> Answer:
        deadline = time.monotonic() + 60
        while (answer := get(observation.address, "/health")).status != status:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return answer

    task = PeriodicTask("test-tidying", tidy, 0.01)
    task.start()
    try:
        reason = await_status(503).failed()["tasks"]
        assert re.fullmatch(r"test-tidying has failed for \d+ s: RuntimeError: a bug; see the log", reason)
        assert get(observation.address, "/ready").status == 200
        shown = get(observation.address, "/metrics").text
        assert float(shown.split('task_failing_seconds{task="test-tidying"} ')[1].split()[0]) > 0
        broken.clear()
        await_status(200)
        shown = get(observation.address, "/metrics").text
        assert 'flight_shuffle_task_failing_seconds{task="test-tidying"} 0.0' in shown
        assert float(shown.split('task_failures_total{task="test-tidying"} ')[1].split()[0]) >= 1
    finally:
        task.close()


def test_the_probe_leaves_nothing_behind_and_looks_once_in_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PROBE_SECONDS", 60.0)
    probe = WriteProbe(tmp_path)
    assert probe.look().reason == ""
    assert list(tmp_path.iterdir()) == []
    tmp_path.rmdir()
    assert probe.look().reason == ""


def test_every_check_is_explained_in_the_documents(parts: Parts, attach: Attach) -> None:
    observation = attach(parts)
    checks = {name for path in ("/health", "/ready") for name in get(observation.address, path).json()["checks"]}
    assert len(checks) == 7
    text = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    assert [name for name in checks if f"| `{name}` |" not in text] == []
