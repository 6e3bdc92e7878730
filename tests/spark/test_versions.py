"""The jar in another Spark than the installed one: by default the oldest that it supports.

That it links with every version is checked where it is built (the profile "versions" of its pom.xml). To run these
tests with other versions: ``SPARK_VERSIONS="4.1.0 4.2.0" scripts/test tests/spark/test_versions.py``.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bench import other_packages
from bench.spark import local_conf
from bench.spark_driver import SparkDriver
from shuffle_plugins.spark import SUPPORTED_SPARK
from tests.spark import held, jobs, observe
from tests.spark.conftest import SORT_SHUFFLE, flight_conf, pushed_bytes
from tests.spark.server import Server

# The first one downloads a PySpark.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(other_packages.INSTALL_TIMEOUT_S + 1200)]

VERSIONS = os.environ.get("SPARK_VERSIONS", f"{SUPPORTED_SPARK[0]}.0").split()
JOBS: tuple[Callable[[SparkSession], Any], ...] = (
    jobs.reduce_by_key,
    jobs.sort_by_key,
    jobs.failing_attempts,
    jobs.sql_skewed_join,
    jobs.sql_window,
)
RECORDS, MAPS, PARTITIONS = 8_000, 8, 4


@pytest.fixture(scope="module", params=VERSIONS)
def driver(
    request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkDriver]:
    scratch: Path = tmp_path_factory.mktemp(f"spark-{request.param}")
    settings = {"spark.master": "local[2, 2]", "spark.unsafe.exceptionOnMemoryLeak": "true"}  # a task may fail once
    conf = local_conf(scratch) | flight_conf(server) | observe.WITH_UI | settings
    with SparkDriver(
        conf, scratch / "log", other_packages.installed(f"pyspark-{request.param}", f"pyspark=={request.param}")
    ) as running:
        assert running.call(version) == request.param
        yield running


def version(spark: SparkSession) -> str:
    return spark.version


def test_answers_equal_sort_shuffles(driver: SparkDriver, server: Server) -> None:
    driver.renew(SORT_SHUFFLE)
    expected = {job: driver.call(job) for job in JOBS}
    driver.renew({})
    for job in JOBS:
        before = pushed_bytes(server)
        assert driver.call(job) == expected[job], job.__name__
        assert pushed_bytes(server) > before


def test_lost_map_output_reruns_that_map_alone(driver: SparkDriver, server: Server) -> None:
    driver.renew({})
    driver.call(held.write, name="one", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    app = driver.call(held.app_key)
    [shuffle] = [found.shuffle.shuffle for found in server.status().shuffles if found.shuffle.app == app]
    tasks = driver.call(observe.map_tasks)
    [victim] = [task for task in tasks if task.map == 5]
    server.output(app, shuffle, victim.id).unlink()
    assert driver.call(held.read, name="one") == held.expected(RECORDS, PARTITIONS)
    [rerun] = driver.call(observe.map_tasks)[len(tasks) :]
    assert rerun.map == victim.map
