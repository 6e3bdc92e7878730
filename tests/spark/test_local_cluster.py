"""Executors in processes of their own: the jar reaches them, and their death costs no map output."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from bench.harness.spark_driver import SparkDriver
from tests.spark import executors, held, jobs, observe
from tests.spark.conftest import SORT_SHUFFLE, StartDriver, flight_conf
from tests.spark.server import Server

pytestmark = pytest.mark.spark

RECORDS, MAPS, PARTITIONS = 8_000, 8, 4
EXPECTED = held.expected(RECORDS, PARTITIONS)
JOBS = (jobs.group_by_key, jobs.sort_by_key, jobs.sql_sort_merge_join, jobs.sql_skewed_join)


@pytest.fixture(scope="module")
def idle_cluster(start_driver: StartDriver, server: Server) -> SparkDriver:
    conf = {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "1g"}
    return start_driver(flight_conf(server) | observe.WITH_UI | conf)


@pytest.fixture(scope="module")
def answers(idle_cluster: SparkDriver) -> list[Any]:
    """Sort shuffle's, of one process."""
    idle_cluster.renew(SORT_SHUFFLE | {"spark.master": "local[2]"})
    return [idle_cluster.call(job) for job in JOBS]


@pytest.fixture(scope="module")
def driver(idle_cluster: SparkDriver, answers: list[Any]) -> SparkDriver:
    idle_cluster.renew({})
    return idle_cluster


@pytest.mark.nightly
def test_jobs_on_two_executors_equal_sort_shuffle_in_one_process(driver: SparkDriver, answers: list[Any]) -> None:
    assert [driver.call(job) for job in JOBS] == answers


def test_killed_executor_costs_no_map(driver: SparkDriver) -> None:
    victim, _ = driver.call(executors.pids)
    driver.call(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    before = driver.call(observe.map_tasks)
    assert len({task.executor for task in before[-MAPS:]}) == 2
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{victim}/cmdline").read_bytes()

    os.kill(victim, signal.SIGKILL)

    assert driver.call(held.read, name="x") == EXPECTED
    assert driver.call(observe.map_tasks) == before
