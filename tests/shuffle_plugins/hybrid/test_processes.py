"""Writers, readers and the server as processes, killed with `kill -9` in the middle: readers get the winner's records.

`failover_scope` names the tasks that run again in this mode: most tests compare with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.harness.server import ServerProcess
from shuffle_api.graph import Edge, JobGraph, Task
from shuffle_api.graph_failover import Lost, failover_scope
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from shuffle_api.testing import oracle
from shuffle_plugins.hybrid import HybridShuffle
from tests.shuffle_plugins.hybrid import task
from tests.shuffle_plugins.hybrid.processes import TaskProcess
from tests.shuffle_plugins.hybrid.scene import Scene

WORKLOAD = oracle.Workload(seed=7, partitions=3, maps=2, records=6000, size=500)
ALL = range(WORKLOAD.partitions)
JOB = JobGraph.of({"writers": 2, "readers": 1}, [Edge("writers", "readers", HybridShuffle.mode)])
WRITERS, READER = [Task("writers", 0), Task("writers", 1)], Task("readers", 0)

pytestmark = pytest.mark.timeout(1200)


class Job:
    """The driver, and how its tasks are started."""

    def __init__(self, server: ServerProcess) -> None:
        self.options: dict[str, OptionValue] = {
            "server": server.control,
            "timeout": 120.0,
            "retry": 120.0,
            "block_bytes": 16 << 10,
            "push_bytes": 256 << 10,
            "flush_timeout": 0.01,
            "linger": 2.0,
            "wait": 60.0,
        }
        self.scene = Scene(WORKLOAD.partitions, WORKLOAD.maps, self.options)

    def write(
        self, map: int, attempt: int = 0, *, pause: float = 0.0, holds: int = -1, waits: bool = False
    ) -> TaskProcess:
        shuffle = self.options, self.scene.handle, WORKLOAD
        given = task.Task("write", *shuffle, MapAttempt(map, attempt), pause=pause, holds=holds, waits=waits)
        return TaskProcess(given)

    def read(self, *, pause: float = 0.0) -> TaskProcess:
        return TaskProcess(task.Task("read", self.options, self.scene.handle, WORKLOAD, partitions=ALL, pause=pause))

    def check(self, reader: TaskProcess, *attempts: int) -> list[str]:
        """It comes to its end with what these attempts wrote. What it said: blocks that were live and stored."""
        said = reader.wait_for("done")
        reader.end()
        winners = [MapAttempt(map, attempt) for map, attempt in enumerate(attempts)]
        assert [output.output for output in self.scene.master.map_outputs(self.scene.handle)] == winners
        oracle.verify(WORKLOAD.expected(winners, ALL), reader.records)
        return said


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that this test may kill."""
    with ServerProcess(tmp_path / "data", tmp_path / "log") as process:
        yield process


@pytest.fixture
def job(own_server: ServerProcess) -> Iterator[Job]:
    made = Job(own_server)
    with made.scene:
        yield made


def test_reader_beside_the_writers_reads_live_and_a_later_one_from_the_store(job: Job) -> None:
    with job.read() as reader, job.write(0, waits=True) as one, job.write(1, waits=True) as two:
        for writer in (one, two):
            assert writer.wait_for("committed") == ["committed", "0"]
            writer.end()
        assert int(job.check(reader, 0, 0)[2]) > 0
    with job.read() as again:
        assert job.check(again, 0, 0)[2] == "0"


def test_killed_writer_takes_along_readers_that_have_begun_and_no_others(job: Job) -> None:
    with job.read() as reader, job.write(0, waits=True) as other:
        with job.write(1, waits=True, holds=3000) as killed:
            other.wait_for("committed")
            reader.wait_until_at(WORKLOAD.records + 1000)  # more than map 0 has: it has begun with both
            killed.kill()
        assert reader.wait_for("broken") == ["broken", "0"]
        reader.end()
    scope = failover_scope(JOB, Lost(frozenset({WRITERS[1]})), finished=frozenset({WRITERS[0]}))
    assert scope.tasks == {WRITERS[1], READER}
    with job.read() as again, job.write(1, attempt=1) as second:
        second.wait_for("committed")
        second.end()
        job.check(again, 0, 1)


def test_reader_that_was_killed_reads_again_and_the_writers_go_on(job: Job) -> None:
    with job.write(0, pause=0.05) as one, job.write(1, pause=0.05) as two:
        with job.read() as killed:
            killed.wait_until_at(1000)
            killed.kill()
        assert failover_scope(JOB, Lost(frozenset({READER}))).tasks == {READER}
        with job.read() as again:
            for writer in (one, two):
                writer.wait_for("committed")
                writer.end()
            job.check(again, 0, 0)


def test_writer_that_has_ended_may_be_killed_with_its_host(job: Job) -> None:
    with job.read(pause=0.05) as slow:
        for map in range(2):
            with job.write(map) as writer:
                writer.wait_for("committed")
                writer.kill()  # while the reader is busy with what came live
        lost = Lost(frozenset(WRITERS))
        assert failover_scope(JOB, lost, finished=frozenset(WRITERS)).tasks == set()
        job.check(slow, 0, 0)


def test_server_that_is_killed_and_comes_back_costs_nobody_anything(job: Job, own_server: ServerProcess) -> None:
    with (
        job.read() as reader,
        job.write(0, pause=0.05, waits=True) as one,
        job.write(1, pause=0.05, waits=True) as two,
    ):
        reader.wait_until_at(1000)
        own_server.kill()
        own_server.restart()
        for writer in (one, two):
            writer.wait_for("committed")
            writer.end()
        job.check(reader, 0, 0)
    own_server.kill()
    own_server.restart()
    with job.read() as again:
        job.check(again, 0, 0)


def test_task_that_cannot_reach_the_driver_goes_by_the_store(job: Job) -> None:
    stored, _, _ = job.scene.handle.endpoint.partition("|")
    handle = job.scene.handle.__class__("hybrid", job.scene.handle.spec, f"{stored}|127.0.0.1:1")
    for map in range(2):
        with HybridShuffle(job.options) as plugin:
            assert oracle.write(plugin, handle, WORKLOAD, MapAttempt(map, 0)).output == MapAttempt(map, 0)
    with HybridShuffle(job.options) as plugin:
        oracle.verify(WORKLOAD.expected(WORKLOAD.attempts(), ALL), oracle.read(plugin, handle))
