"""Executors may leave at any time, since their map outputs lie at the server: Spark knows, and runs no map again.

Without that, dynamic allocation takes shuffle tracking (executors stay as long as their output is wanted) or an
external shuffle service, and decommissioning moves the outputs to other executors first.
"""

import os
import signal
import time

import pytest

from bench.harness.spark_driver import JobFailed, SparkDriver
from tests.spark import executors, held, leaks, observe, strangers
from tests.spark.conftest import SORT_SHUFFLE, StartDriver, flight_conf
from tests.spark.server import Server

pytestmark = pytest.mark.spark

DEADLINE_S = 240.0
RECORDS, MAPS, PARTITIONS = 8_000, 6, 3
EXPECTED = held.expected(RECORDS, PARTITIONS)

CLUSTER = observe.WITH_UI | {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "1g"}
DYNAMIC = {
    "spark.decommission.enabled": "false",  # it alone would do: Spark counts on moving the outputs then
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "false",
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "1",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
}
DECOMMISSION = {
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
    "spark.storage.decommission.replicationReattemptInterval": "1s",  # until then one that leaves looks for more to do
}


@pytest.fixture(scope="module")
def cluster(start_driver: StartDriver, server: Server) -> SparkDriver:
    return start_driver(flight_conf(server) | CLUSTER | DECOMMISSION)


def test_executor_killed_in_the_middle_of_a_map_stage_takes_no_output_with_it(
    cluster: SparkDriver, server: Server
) -> None:
    victim, _ = cluster.call(executors.pids)
    cluster.begin(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS, pause=0.5)
    deadline = time.monotonic() + DEADLINE_S
    while max((shuffle.committed for shuffle in server.status().shuffles), default=0) < MAPS // 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)

    os.kill(victim, signal.SIGKILL)

    cluster.result()
    assert cluster.call(held.read, name="x") == EXPECTED
    assert sorted(task.map for task in cluster.call(observe.map_tasks)) == list(range(MAPS))


def test_decommissioned_executor_leaves_and_no_map_runs_again(cluster: SparkDriver, server: Server) -> None:
    cluster.call(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS, pause=0.2)
    before = cluster.call(observe.map_tasks)[-MAPS:]
    leaving = before[0].executor

    assert cluster.call(executors.decommission, executor=leaving)
    leaks.wait_until_none(lambda: leaving in cluster.call(observe.executors), "the executor")

    assert cluster.call(held.read, name="x") == EXPECTED
    assert cluster.call(observe.map_tasks)[-MAPS:] == before


@pytest.mark.nightly
def test_idle_executors_leave_without_shuffle_tracking_and_no_map_runs_again(
    cluster: SparkDriver, server: Server
) -> None:
    cluster.renew(DYNAMIC)
    cluster.call(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    before = cluster.call(observe.map_tasks)
    assert len(before) == MAPS

    leaks.wait_until_none(lambda: cluster.call(observe.executors), "executors")

    assert cluster.call(held.read, name="x") == EXPECTED
    assert cluster.call(observe.map_tasks) == before


def test_without_a_server_dynamic_allocation_needs_tracking(cluster: SparkDriver) -> None:
    """What falls back lies on executors. Spark says so before the first job; nothing of the application is left."""
    with strangers.nobody() as address:
        away = {"spark.shuffle.flight.server": address, "spark.shuffle.flight.connectTimeout": "1s"}
        cluster.renew(DYNAMIC | away | {"spark.shuffle.flight.fallback": "auto"})
        with pytest.raises(JobFailed, match="Dynamic allocation of executors requires one of the following conditions"):
            cluster.call(held.app_key)
    cluster.renew(SORT_SHUFFLE | {"spark.master": "local[2]"})
    leaks.wait_until_none(lambda: cluster.call(leaks.threads), "threads")
