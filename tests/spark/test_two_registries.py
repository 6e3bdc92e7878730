"""Two registries that share two workers: a Spark application does not depend on the master that it was given."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.harness.cluster import holders
from bench.harness.spark import local_conf
from bench.harness.spark_driver import SparkDriver
from bench.shared_workers import SharedWorkers, app_of
from shuffle_plugins.spark import find_jar, spark_conf
from tests.spark import held

pytestmark = pytest.mark.spark

RECORDS, MAPS, PARTITIONS = 8_000, 8, 4
EXPECTED = held.expected(RECORDS, PARTITIONS)


def test_an_application_goes_on_when_the_only_master_that_it_was_given_is_killed(tmp_path: Path) -> None:
    with SharedWorkers(tmp_path, 2) as cluster:
        given, own = cluster.masters["a"], cluster.masters["b"]
        apart = {"spark.master": "local-cluster[1,2,1024]", "spark.executor.memory": "1g"}
        base = local_conf(tmp_path) | {"spark.jars": str(find_jar())} | apart
        flight = spark_conf(given.control, fallback="never", options={"app": app_of("b"), "connectTimeout": "120s"})
        with SparkDriver(base | flight, tmp_path / "spark.log") as driver:
            driver.call(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
            app = driver.call(held.app_key)
            assert app.endswith("~b")
            assert len(holders(own.control, app, 0)) == MAPS
            given.kill()
            assert driver.call(held.read, name="x") == EXPECTED
            driver.call(held.write, name="y", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
            assert driver.call(held.read, name="y") == EXPECTED
            assert [each.app for each in own.status().apps] == [app]
