"""A master and two workers, each a process: map outputs lie at both, and a worker that is gone costs its maps only."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from bench.harness.cluster import ClusterProcesses, holders, wait_until
from bench.harness.spark import local_conf
from bench.harness.spark_driver import SparkDriver
from shuffle_plugins.spark import find_jar, spark_conf
from shuffle_server import cli
from tests.shuffle_server.helpers import mounted_tmpfs
from tests.spark import executors, held, observe

pytestmark = pytest.mark.spark

MIB = 1 << 20
RECORDS, MAPS, PARTITIONS = 8_000, 8, 4
EXPECTED = held.expected(RECORDS, PARTITIONS)
# So that the workers' heartbeats do not decide who gets which: each gets some.
ALL_MAPS_AT_ONCE = {"spark.master": f"local[{MAPS}]"}


def driver_of(
    cluster: ClusterProcesses, scratch: Path, conf: dict[str, str] | None = None, **options: str
) -> SparkDriver:
    """A driver of its own, which has to be closed: its list of lost workers must not reach other tests."""
    base = local_conf(scratch) | observe.WITH_UI | {"spark.master": "local[2]", "spark.jars": str(find_jar())}
    flight = spark_conf(cluster.master.control, fallback="never", options=options)
    return SparkDriver(base | flight | (conf or {}), scratch / "spark.log")


def test_a_worker_killed_between_the_stages_costs_its_maps_and_no_other(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, workers=2, worker_timeout=12) as cluster:
        # Over the wire, as from another host: here the files of a worker that is gone could still be read.
        with driver_of(cluster, tmp_path, ALL_MAPS_AT_ONCE, retryWindow="2s", handOver="off") as driver:
            driver.call(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
            before = driver.call(observe.map_tasks)
            holder = holders(cluster.master.control, driver.call(held.app_key), 0)
            assert set(holder.values()) == {worker.worker for worker in cluster.workers}
            victim = cluster.workers[0]
            lost = sorted(task.map for task in before if holder[task.id] == victim.worker)

            victim.kill()
            wait_until(lambda: victim.worker not in cluster.worker_ids(), "the worker is given up")

            assert driver.call(held.read, name="x") == EXPECTED
            reruns = driver.call(observe.map_tasks)[len(before) :]
            assert sorted(task.map for task in reruns) == lost


@pytest.mark.nightly
def test_a_drained_worker_costs_no_map(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, workers=2) as cluster:
        with driver_of(cluster, tmp_path, ALL_MAPS_AT_ONCE, retryWindow="2s") as driver:
            driver.call(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
            before = driver.call(observe.map_tasks)
            app = driver.call(held.app_key)
            assert len(set(holders(cluster.master.control, app, 0).values())) == 2

            leaving, staying = cluster.workers
            assert cli.main(["drain", "--master", cluster.master.control, leaving.worker]) == 0
            leaving.stop()  # it ends by itself, in order
            assert set(holders(cluster.master.control, app, 0).values()) == {staying.worker}

            assert driver.call(held.read, name="x") == EXPECTED
            assert driver.call(observe.map_tasks) == before


@pytest.mark.nightly
def test_outputs_moved_off_a_disk_that_has_filled_up_cost_no_map(tmp_path: Path) -> None:
    with mounted_tmpfs(tmp_path / "small", 500 * MIB), ClusterProcesses(tmp_path, workers=0) as cluster:
        full = cluster.add_worker("small")
        with driver_of(cluster, tmp_path, retryWindow="2s") as driver:
            driver.call(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
            before = driver.call(observe.map_tasks)
            app = driver.call(held.app_key)
            assert set(holders(cluster.master.control, app, 0).values()) == {full.worker}

            roomy = cluster.add_worker()
            (tmp_path / "small" / "ballast").write_bytes(bytes(400 * MIB))
            wait_until(
                lambda: set(holders(cluster.master.control, app, 0).values()) == {roomy.worker},
                "all that was on the full disk lies at the other worker",
            )
            assert driver.call(held.read, name="x") == EXPECTED
            assert driver.call(observe.map_tasks) == before


@pytest.mark.nightly
def test_with_two_replicas_a_worker_killed_for_good_costs_no_map(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, workers=2, worker_timeout=12) as cluster:
        with driver_of(cluster, tmp_path, replicas="2") as driver:
            driver.call(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
            before = driver.call(observe.map_tasks)
            victim = cluster.workers[0]
            victim.kill()
            assert victim.worker in cluster.worker_ids()

            assert driver.call(held.read, name="x") == EXPECTED  # at once, from the other copy
            wait_until(lambda: victim.worker not in cluster.worker_ids(), "the worker is given up")
            assert driver.call(held.read, name="x") == EXPECTED
            assert driver.call(observe.map_tasks) == before


@pytest.mark.nightly
def test_an_executor_that_knows_no_worker_waits_for_a_master_that_is_away(tmp_path: Path) -> None:
    executors_apart = {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "1g"}
    with ClusterProcesses(tmp_path, workers=2) as cluster:
        with driver_of(cluster, tmp_path, executors_apart, connectTimeout="5s") as driver:
            driver.call(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
            before = driver.call(observe.map_tasks)
            old = driver.call(observe.executors)
            os.kill(driver.call(executors.pids)[0], signal.SIGKILL)
            wait_until(
                lambda: len(driver.call(observe.executors)) == 2 and driver.call(observe.executors) != old,
                "another executor takes its place",
            )

            cluster.master.kill()
            driver.begin(held.read, name="x")
            time.sleep(7)  # longer than a call is tried
            cluster.master.restart()

            assert driver.result() == EXPECTED
            assert driver.call(observe.map_tasks) == before
