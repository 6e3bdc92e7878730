"""A standalone cluster, whose executors get the jar from Spark; and speculation, which needs two hosts.

Two attempts of one map have data on its way; one wins, and each row is there once.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.harness.files import files_below, size_of
from bench.harness.spark_driver import SparkDriver
from tests.spark import held, jobs, leaks, observe, stages
from tests.spark.conftest import StartDriver, flight_conf
from tests.spark.server import Server
from tests.spark.standalone import Standalone

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

RECORDS, MAPS, PARTITIONS = 8_000, 8, 4
SETTINGS = observe.WITH_UI | {
    "spark.executor.memory": "1g",
    "spark.executor.cores": "2",
    "spark.cores.max": "4",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # no task before both executors are there
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.efficiency.enabled": "false",
    "spark.unsafe.exceptionOnMemoryLeak": "true",
    "spark.shuffle.flight.batchSize": "1m",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("standalone"), cores=2) as running:
        yield running


@pytest.fixture(scope="module")
def driver(cluster: Standalone, start_driver: StartDriver, server: Server) -> SparkDriver:
    return start_driver(flight_conf(server) | SETTINGS | {"spark.master": cluster.url})


def test_executors_of_two_workers_shuffle_through_the_server(driver: SparkDriver) -> None:
    # The executor that starts last may lose its first tasks to copies that the other made meanwhile.
    deadline = time.monotonic() + stages.DEADLINE_S
    while len({task.executor for task in driver.call(observe.map_tasks)}) < 2:
        assert time.monotonic() < deadline, "one of the executors writes nothing"
        driver.call(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS, pause=0.3)
        assert driver.call(held.read, name="x") == held.expected(RECORDS, PARTITIONS)


def test_attempt_that_loses_to_its_speculative_copy_leaves_no_row(
    driver: SparkDriver, server: Server, tmp_path: Path
) -> None:
    seen = len(driver.call(observe.tasks))
    flag = tmp_path / "written"

    driver.begin(stages.speculated, flag=str(flag))
    deadline = time.monotonic() + stages.DEADLINE_S
    while not (
        flag.exists() and any(size_of(path) for path in files_below(server.data_dir) if path.suffix == ".partial")
    ):
        assert time.monotonic() < deadline
        time.sleep(0.02)

    assert driver.result() == (64, jobs.digest(map(stages.payload, range(64))))
    leaks.wait_until_none(lambda: running(driver), "tasks")
    attempts = [(task.status, task.speculative) for task in driver.call(observe.tasks)[seen:] if task.index == 0]
    assert ("SUCCESS", True) in attempts
    assert ("KILLED", False) in attempts
    leaks.wait_until_none(lambda: leaks.under_way(server), "under way")


def running(driver: SparkDriver) -> list[observe.Task]:
    return [task for task in driver.call(observe.tasks) if task.status == "RUNNING"]
