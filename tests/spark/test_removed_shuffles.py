"""A shuffle that is removed leaves nothing: no file on an executor or at the server, nothing in the heap."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.harness.spark import local_conf
from bench.harness.spark_driver import SparkDriver
from tests.spark import held, leaks, removed
from tests.spark.conftest import StartDriver, flight_conf, new_driver
from tests.spark.server import Server

pytestmark = pytest.mark.spark

FIRST = 100
SHUFFLES = int(os.environ.get("SHUFFLES", "0"))  # a long run: so many, in each mode, and the heap is compared too
MORE = max(200, SHUFFLES - FIRST)
SLACK = 25  # objects of one class, threads or descriptors that come and go with the work at hand
HEAP_SLACK = 8 << 20
FALLBACK = "spark.shuffle.flight.fallback"
MODES = {
    "never": {FALLBACK: "never"},
    "always": {FALLBACK: "always"},
    "auto": {FALLBACK: "auto", "spark.shuffle.flight.server": "127.0.0.1:1"},  # where nobody is
}
# Spark's own records of what is over, which are full after the first shuffles.
FEW_RECORDS = {
    "spark.ui.retainedJobs": "5",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "5",
}


@pytest.fixture(scope="module")
def driver(start_driver: StartDriver, server: Server) -> SparkDriver:
    return start_driver(flight_conf(server))


def run(driver: SparkDriver, shuffles: int) -> None:
    assert driver.call(removed.shuffles, count=shuffles) == shuffles * removed.ROWS


def wait_until_removed(driver: SparkDriver, server: Server) -> None:
    leaks.wait_until_none(lambda: driver.call(removed.local_files), "local files")
    leaks.wait_until_none(
        lambda: driver.call(held.collect_garbage) or list(server.status().shuffles), "shuffles at the server"
    )


@pytest.mark.parametrize("mode", MODES if SHUFFLES else ["never", pytest.param("always", marks=pytest.mark.nightly)])
def test_hundreds_of_shuffles_leave_no_more_than_the_first_ones(driver: SparkDriver, server: Server, mode: str) -> None:
    driver.renew(MODES[mode] | FEW_RECORDS)
    run(driver, FIRST)
    wait_until_removed(driver, server)
    before = driver.call(removed.kept)
    run(driver, MORE)
    wait_until_removed(driver, server)
    after = driver.call(removed.kept)
    heaps = before.pop("heap"), after.pop("heap")
    assert not SHUFFLES or heaps[1] <= heaps[0] + HEAP_SLACK
    grown = {name: (before.get(name, 0), count) for name, count in after.items() if count > before.get(name, 0) + SLACK}
    assert not grown


def test_shuffle_that_fell_back_is_written_anew_after_it_was_cleaned(driver: SparkDriver) -> None:
    driver.renew({FALLBACK: "always"})
    driver.call(held.write, name="local", records=2_000, maps=3, partitions=2)
    for _ in range(2):
        driver.call(held.clean, name="local")
        assert driver.call(removed.local_files) == 0
        assert driver.call(held.read, name="local") == held.expected(2_000, 2)


def test_executors_remove_the_local_files_of_shuffles_that_fell_back(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, server: Server
) -> None:
    conf = {"spark.master": "local-cluster[1,1,1024]", "spark.executor.memory": "1g", FALLBACK: "always"}
    # A JVM of its own: executors of a local cluster write where the first session of their driver's JVM did.
    with new_driver(local_conf(tmp_path) | flight_conf(server) | conf, tmp_path_factory) as driver:
        driver.call(held.write, name="local", records=2_000, maps=3, partitions=2)
        assert driver.call(removed.local_files) > 0
        driver.call(held.clean, name="local")
        assert driver.call(removed.local_files) == 0
        assert driver.call(held.read, name="local") == held.expected(2_000, 2)
