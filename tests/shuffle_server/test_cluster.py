"""One master, two workers, each a process: placement, kill -9 of each of them, expiry, a worker that comes back."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.harness.cluster import ClusterProcesses, wait_until
from shuffle_api.errors import MapOutputLost, MapOutputNotWritten
from shuffle_api.ids import MapAttempt
from shuffle_plugins.remote import RemoteShuffle
from tests.shuffle_server.helpers import output_files, read_all, write_map

MAPS = 8


def is_empty(data_dir: Path) -> bool:
    return not output_files(data_dir)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path_factory.mktemp("cluster"), workers=2) as running:
        yield running


@pytest.fixture
def plugin(cluster: ClusterProcesses) -> Iterator[RemoteShuffle]:
    with RemoteShuffle({"server": cluster.master.control, "timeout": 120, "retry": 120, "hand_over": "off"}) as remote:
        yield remote


def test_a_job_is_spread_over_the_workers_survives_kill_9_of_all_and_leaves_no_file(
    cluster: ClusterProcesses, plugin: RemoteShuffle
) -> None:
    with plugin.master("job") as master:
        handle = master.register_shuffle(8, MAPS)
        expected = [record for n in range(MAPS) for record in write_map(plugin, handle, n)]
        assert {output.worker for output in master.map_outputs(handle)} == {w.worker for w in cluster.workers}
        assert read_all(plugin, handle) == sorted(expected)
        for process in (cluster.master, *cluster.workers):
            process.kill()
            process.restart()
            assert read_all(plugin, handle) == sorted(expected)
        with pytest.raises(MapOutputNotWritten):
            read_all(plugin, master.register_shuffle(8, 1))
    for worker in cluster.workers:
        wait_until(functools.partial(is_empty, worker.data_dir), "the files of the job are gone")


def test_an_application_that_runs_again_never_reads_the_files_of_its_last_run(
    cluster: ClusterProcesses, plugin: RemoteShuffle
) -> None:
    for attempt in range(3):
        with plugin.master("again") as master:
            handle = master.register_shuffle(8, 2, shuffle=0)
            with pytest.raises(MapOutputNotWritten):
                read_all(plugin, handle)
            expected = [record for n in range(2) for record in write_map(plugin, handle, n, attempt=attempt)]
            assert [output.output for output in master.map_outputs(handle)] == [
                MapAttempt(n, attempt) for n in range(2)
            ]
            assert read_all(plugin, handle) == sorted(expected)


def test_a_worker_that_is_gone_for_good_loses_its_maps_only_and_may_come_back(tmp_path: Path) -> None:
    with (
        ClusterProcesses(tmp_path, workers=2, worker_timeout=12) as cluster,
        RemoteShuffle({"server": cluster.master.control, "timeout": 120, "retry": 120, "hand_over": "off"}) as plugin,
        plugin.master("gone") as master,
    ):
        handle = master.register_shuffle(8, MAPS)
        with ThreadPoolExecutor(MAPS) as threads:  # at once: so the workers' heartbeats do not decide who gets which
            written = list(threads.map(functools.partial(write_map, plugin, handle), range(MAPS)))
        victim = cluster.workers[0]
        lost = [output.output.map for output in master.map_outputs(handle) if output.worker == victim.worker]
        assert lost
        assert len(lost) < MAPS
        victim.kill()
        wait_until(lambda: victim.worker not in cluster.worker_ids(), "the worker is given up")
        with pytest.raises(MapOutputLost, match=f"maps {lost[0]}.* have been lost"):
            read_all(plugin, handle)
        for n in lost:
            written[n] = write_map(plugin, handle, n, attempt=1)
        assert {output.worker for output in master.map_outputs(handle)} == {cluster.workers[1].worker}
        everything = sorted(record for records in written for record in records)
        assert read_all(plugin, handle) == everything
        victim.restart()
        assert victim.worker in cluster.worker_ids()
        assert not list(victim.data_dir.rglob("*.out"))
        assert read_all(plugin, handle) == everything
