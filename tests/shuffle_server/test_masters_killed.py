"""Two masters that share four workers, all processes: kill -9 of one master concerns only its own applications."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.harness.server import ServerProcess, lasting_addresses
from bench.shared_workers import Job, SharedWorkers, app_of
from shuffle_plugins.remote import RemoteShuffle
from tests.shuffle_server.helpers import read_all, write_map
from tests.shuffle_server.master.database import running_database
from tests.shuffle_server.master_process import MasterProcess

MAPS = 8


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SharedWorkers]:
    with SharedWorkers(tmp_path, 4) as running:
        yield running


def test_the_jobs_of_one_master_go_on_while_the_other_is_gone_and_those_of_that_one_when_it_is_back(
    cluster: SharedWorkers,
) -> None:
    survivor, victim = cluster.masters["a"], cluster.masters["b"]
    servers = f"{victim.control},{survivor.control}"
    with (
        RemoteShuffle({"server": servers, "timeout": 120, "retry": 120, "hand_over": "off"}) as plugin,
        plugin.master(app_of("b", 1)) as master,
    ):
        handle = master.register_shuffle(8, MAPS)
        expected = [record for n in range(MAPS) for record in write_map(plugin, handle, n)]
        unconcerned, concerned = Job(survivor.control, app_of("a")), Job(survivor.control, app_of("b"))
        for job in (unconcerned, concerned):
            job.await_rounds(2)
        victim.kill()
        unconcerned.await_rounds(5)
        worker = cluster.workers[0]
        worker.kill()
        worker.restart()  # which joins the master that is there
        unconcerned.await_rounds(5)
        assert concerned.error is None
        victim.restart()
        for job in (concerned, unconcerned):
            job.await_rounds(5)
            job.stop()
        assert read_all(plugin, handle) == sorted(expected)
        for each in (survivor, victim):
            status = each.status()
            assert (len(status.workers), status.workers_lost, status.outputs_lost) == (4, 0, 0)


@pytest.mark.nightly
def test_a_standby_takes_over_its_registry_and_the_jobs_of_the_other_go_on(tmp_path: Path) -> None:
    a, b, standby = lasting_addresses(3)
    masters = f"a={a},b={b},{standby}"
    of_a, of_b = (["--registry", name, "--masters", masters] for name in ("a", "b"))
    with ExitStack() as stack:
        metadata = stack.enter_context(running_database()).fresh()
        stack.enter_context(ServerProcess(tmp_path / "a", tmp_path / "a.log", of_a, role="master", listen=a))
        leader = stack.enter_context(MasterProcess(tmp_path / "b1", metadata, of_b, b))
        leader.await_leading()
        second = stack.enter_context(MasterProcess(tmp_path / "b2", metadata, of_b, standby))
        second.await_standing_by()
        for name in ("w1", "w2"):
            given = ("--master", masters)
            stack.enter_context(ServerProcess(tmp_path / name, tmp_path / f"{name}.log", given, role="worker"))
        jobs = [Job(a, app_of("a")), Job(a, app_of("b"))]
        for job in jobs:
            job.await_rounds(2)
        leader.process.kill()
        second.await_leading()
        for job in jobs:
            job.await_rounds(5)
            job.stop()
