"""Workers leave, or are started again one after the other, and nothing is lost: no map runs again, readers go on."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.harness.cluster import ClusterProcesses, wait_until
from bench.harness.server import ServerProcess
from shuffle_api.errors import ShuffleError
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from shuffle_api.values import MapOutput, ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle
from tests.shuffle_server.helpers import output_files, read_all, write_map
from tests.shuffle_server.test_server import run_cli

MAPS = 8
PARTITIONS = 4


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path, workers=3) as running:
        yield running


@pytest.fixture
def plugin(cluster: ClusterProcesses) -> Iterator[RemoteShuffle]:
    options: dict[str, OptionValue] = {
        "timeout": 120,
        "retry": 120,
        "push_bytes": 64 << 10,
        "block_bytes": 16 << 10,
        "codec": "none",
        "hand_over": "off",
    }
    with RemoteShuffle({"server": cluster.master.control, **options}) as remote:
        yield remote


def drain(cluster: ClusterProcesses, worker: ServerProcess) -> dict[str, object]:
    done = run_cli("drain", "--master", cluster.master.control, worker.worker, "--json", "--timeout", "200")
    assert done.returncode == 0, done.stderr
    report: dict[str, object] = json.loads(done.stdout)
    return report


def ended(worker: ServerProcess) -> None:
    """The process ends by itself, well."""
    wait_until(lambda: not worker.running, "the worker's process ends")
    worker.stop()


def attempts(outputs: list[MapOutput]) -> list[MapAttempt]:
    return [output.output for output in outputs]


def test_a_worker_is_drained_in_the_middle_of_reads_and_writes(
    cluster: ClusterProcesses, plugin: RemoteShuffle
) -> None:
    with plugin.master("job") as master:
        handle = master.register_shuffle(PARTITIONS, MAPS)
        expected = [record for n in range(MAPS - 1) for record in write_map(plugin, handle, n, records=2000)]
        before = master.map_outputs(handle)
        with plugin.writer(handle, MapAttempt(MAPS - 1, 0)) as writer, plugin.watch(handle) as watch:
            writer.write(0, bytes(1 << 20))
            wait_until(lambda: bool(staging(cluster)), "the writer has sent something")
            [victim] = staging(cluster)
            held = [output for output in before if output.worker == victim.worker]
            assert held
            reading = iter(plugin.reader(handle, range(PARTITIONS), range(MAPS - 1)))
            read = [next(reading)]
            with ThreadPoolExecutor(1) as thread:
                draining = thread.submit(drain, cluster, victim)
                wait_until(lambda: is_draining(cluster, victim), "the worker drains")
                assert read_all(plugin, handle, range(MAPS - 1)) == sorted(expected)
                writer.write(1, b"the last of it")
                committed = writer.commit()  # where it began: the worker waits for it
                assert committed.worker == victim.worker
                report = draining.result()
            assert (report["worker"], report["left"]) == (victim.worker, True)
            assert report["outputs"] == len(held)
            ended(victim)
            assert victim.worker not in cluster.worker_ids()
            assert sorted([*read, *reading]) == sorted(expected)
            expected += [(0, bytes(1 << 20)), (1, b"the last of it")]
            assert read_all(plugin, handle) == sorted(expected)
            after = master.map_outputs(handle)
            assert attempts(after) == [*attempts(before), MapAttempt(MAPS - 1, 0)]
            assert all(len(output.workers) == 1 for output in after)
            with pytest.raises(ShuffleError, match="no map output"):
                watch.next(0.2)
        assert output_files(victim.data_dir) == []
        victim.restart()  # as a new one
        assert victim.worker in cluster.worker_ids()
        assert not is_draining(cluster, victim)


def staging(cluster: ClusterProcesses) -> list[ServerProcess]:
    """The workers at which something is being written. Read from disk, as their reports may be some seconds old."""
    return [worker for worker in cluster.workers if any(worker.data_dir.rglob("*.partial"))]


def is_draining(cluster: ClusterProcesses, worker: ServerProcess) -> bool:
    return any(each.id == worker.worker and each.draining for each in cluster.master.status().workers)


def test_a_worker_that_is_told_to_drain_on_sigterm_hands_over_before_it_ends(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, workers=1) as cluster:
        leaver = cluster.add_worker("leaver", "--drain", "200")
        with (
            RemoteShuffle(
                {"server": cluster.master.control, "timeout": 120, "retry": 120, "hand_over": "off"}
            ) as plugin,
            plugin.master("job") as master,
        ):
            handle = master.register_shuffle(PARTITIONS, MAPS)
            expected = sorted(record for n in range(MAPS) for record in write_map(plugin, handle, n))
            before = master.map_outputs(handle)
            assert {output.worker for output in before} == {leaver.worker, cluster.workers[0].worker}
            leaver.stop()
            for log in (leaver.log, cluster.master.log):
                assert " WARNING " not in log.read_text(), log.read_text()
            assert cluster.worker_ids() == {cluster.workers[0].worker}
            assert read_all(plugin, handle) == expected
            assert attempts(master.map_outputs(handle)) == attempts(before)


def test_without_another_worker_a_drain_keeps_everything_and_says_what_is_missing(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, workers=0) as cluster:
        only = cluster.add_worker("only", "--drain", "2")
        with (
            RemoteShuffle(
                {"server": cluster.master.control, "timeout": 120, "retry": 120, "hand_over": "off"}
            ) as plugin,
            plugin.master("job") as master,
        ):
            handle = master.register_shuffle(PARTITIONS, 2)
            expected = sorted(record for n in range(2) for record in write_map(plugin, handle, n))
            done = run_cli("drain", "--master", cluster.master.control, only.worker, "--timeout", "1")
            assert done.returncode == 1
            assert "2 map outputs" in done.stderr
            assert "no other worker takes them" in done.stderr
            assert done.stdout == ""
            done = run_cli("drain", "--master", cluster.master.control, "nobody", "--timeout", "1")
            assert "there is no worker 'nobody'" in done.stderr
            assert read_all(plugin, handle) == expected
            only.stop()  # drains for two seconds, in vain
            only.restart()
            assert read_all(plugin, handle) == expected
            assert not is_draining(cluster, only)


def test_a_drain_goes_on_when_the_master_is_started_again(cluster: ClusterProcesses, plugin: RemoteShuffle) -> None:
    with plugin.master("job") as master:
        handle = master.register_shuffle(PARTITIONS, MAPS + 1)
        expected = sorted(record for n in range(MAPS) for record in write_map(plugin, handle, n))
        with plugin.writer(handle, MapAttempt(MAPS, 0)) as writer:  # as long as it is there the worker does not leave
            for n in range(400):
                writer.write(n % PARTITIONS, bytes(1000))
            wait_until(lambda: bool(staging(cluster)), "the writer has sent something")
            [victim] = staging(cluster)
            command = [sys.executable, "-m", "shuffle_server", "drain", "--master", cluster.master.control]
            with subprocess.Popen([*command, victim.worker], stdout=subprocess.PIPE, text=True) as draining:
                wait_until(lambda: is_draining(cluster, victim), "the worker drains")
                cluster.master.kill()
                cluster.master.restart()
                wait_until(lambda: is_draining(cluster, victim), "the worker still drains")
                writer.abort()
                said, _ = draining.communicate(timeout=240)
                assert draining.returncode == 0
                assert said.endswith("has left\n")
        ended(victim)
        assert read_all(plugin, handle, range(MAPS)) == expected


class Job:
    """A Python job that runs until `end`: rounds of maps and reads, whose tasks are tried again when
    they fail, as an engine does. Each read is compared with the records written."""

    def __init__(self, plugin: RemoteShuffle, handle: ShuffleHandle) -> None:
        self._plugin, self._handle = plugin, handle
        self._enough = threading.Event()
        self.expected: list[tuple[int, bytes]] = []
        self.written = 0
        self._thread = ThreadPoolExecutor(1)
        self._run_result = self._thread.submit(self._run)

    def _run(self) -> None:
        while not self._enough.is_set() and self.written < self._handle.spec.maps:
            self.expected += self._task(self.written)
            self.written += 1
            assert read_all(self._plugin, self._handle, range(self.written)) == sorted(self.expected)

    def _task(self, map_id: int) -> list[tuple[int, bytes]]:
        for attempt in range(4):
            try:
                return write_map(self._plugin, self._handle, map_id, records=2000, attempt=attempt)
            except ShuffleError:  # what it had written to a worker that was started again meanwhile
                if attempt == 3:
                    raise
        raise AssertionError("unreachable")

    def end(self) -> None:
        self._enough.set()
        self._run_result.result(timeout=400)
        self._thread.shutdown()


@pytest.mark.parametrize("how", [pytest.param("restart", marks=pytest.mark.nightly), "drain"])
def test_a_job_runs_while_each_worker_in_turn_is_replaced(
    cluster: ClusterProcesses, plugin: RemoteShuffle, how: str
) -> None:
    with plugin.master("job") as master:
        handle = master.register_shuffle(PARTITIONS, 10_000)
        with plugin.watch(handle) as watch:
            job = Job(plugin, handle)
            for worker in cluster.workers:
                done = job.written
                wait_until(lambda done=done: job.written > done + 2, "the job goes on")  # type: ignore[misc]
                if how == "drain":
                    drain(cluster, worker)
                    ended(worker)
                else:
                    worker.stop()
                worker.restart()
            job.end()
            assert read_all(plugin, handle, range(job.written)) == sorted(job.expected)
            with pytest.raises(ShuffleError, match="no map output"):
                watch.next(0.2)
        assert [output.output.map for output in master.map_outputs(handle)] == list(range(job.written))
