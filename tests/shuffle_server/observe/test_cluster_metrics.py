"""A master and a worker in processes of their own: each shows what it has, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.harness.server import ServerFailed, ServerProcess
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.observe import families
from tests.shuffle_server.helpers import read_all, write_map
from tests.shuffle_server.observe.helpers import Scrape, get

METRICS = ["--metrics-listen", "127.0.0.1:0"]
DEADLINE = 240.0


@pytest.fixture
def master(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "master", tmp_path / "master.log", METRICS, role="master") as process:
        yield process


@pytest.fixture
def worker(tmp_path: Path, master: ServerProcess) -> Iterator[ServerProcess]:
    arguments = ["--master", master.control, *METRICS]
    with ServerProcess(tmp_path / "worker", tmp_path / "worker.log", arguments, role="worker") as process:
        yield process


def names(part: families.Part) -> set[str]:
    return {family.name.removesuffix("_total") for family in families.ALL if part in family.parts}


def shown(process: ServerProcess) -> set[str]:
    return {name for name in Scrape(process.metrics).families if not name.startswith("process_")}


def test_each_shows_the_metrics_of_its_part(master: ServerProcess, worker: ServerProcess) -> None:
    assert shown(worker) == names("worker")
    assert shown(master) == names("master")  # the worker's heartbeats are control calls


def test_what_is_pushed_to_the_worker_is_counted_there_and_at_the_master(
    master: ServerProcess, worker: ServerProcess
) -> None:
    with RemoteShuffle({"server": master.control}) as plugin, plugin.master("job") as job:
        handle = job.register_shuffle(4, 2)
        expected = sorted(record for m in range(2) for record in write_map(plugin, handle, m, 500))
        assert read_all(plugin, handle) == expected
        size = sum(output.totals.bytes for output in job.map_outputs(handle))
        at_worker, at_master = Scrape(worker.metrics), Scrape(master.metrics)
        assert at_worker("pushed_bytes_total") == at_worker("stored_bytes", state="committed") == size
        assert at_worker("pulled_bytes_total") == size
        assert at_worker("commits_total", outcome="won") == 2
        assert at_master("map_outputs", state="committed") == 2
        assert at_master("map_output_bytes") == size
        assert at_master("workers") == 1
        assert at_master("control_seconds_count", method="Commits") >= 1
        assert at_master("control_seconds_count", method="RegisterShuffle") == 1


def test_both_are_well_and_ready_and_a_worker_without_its_master_is_only_well(
    master: ServerProcess, worker: ServerProcess
) -> None:
    for process, checks in (
        (master, {"journal", "leader", "registry", "tasks", "accepting"}),
        (worker, {"tasks", "accepting", "disk", "registered"}),
    ):
        health, ready = get(process.metrics, "/health"), get(process.metrics, "/ready")
        assert (health.status, ready.status) == (200, 200)
        assert {*health.json()["checks"], *ready.json()["checks"]} == checks
    master.kill()
    give_up = time.monotonic() + DEADLINE
    while get(worker.metrics, "/ready").status == 200:
        assert time.monotonic() < give_up
        time.sleep(0.1)
    assert list(get(worker.metrics, "/ready").failed()) == ["registered"]
    assert get(worker.metrics, "/health").status == 200
    master.restart()
    while get(worker.metrics, "/ready").status != 200:
        assert time.monotonic() < give_up
        time.sleep(0.1)


def test_a_master_or_worker_that_cannot_start_stops_answering(tmp_path: Path, master: ServerProcess) -> None:
    taken = ["--metrics-listen", master.metrics]
    for role, arguments in (("master", taken), ("worker", ["--master", master.control, *taken])):
        with pytest.raises(ServerFailed, match=f"cannot listen on {master.metrics}"):
            ServerProcess(tmp_path / f"other-{role}", tmp_path / "other.log", arguments, role=role)
