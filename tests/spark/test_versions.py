"""The jars in other Sparks than the installed one: by default in the oldest that the jar for Spark 4 supports.

That it links with every version is checked where it is built (the profile "versions" of its pom.xml). To run these
tests with other versions: ``SPARK_VERSIONS="3.5.9 4.2.0" scripts/test tests/spark/test_versions.py``. To run the other
tests with them: ``scripts/spark-versions``.
"""

import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from bench.harness.spark import local_conf
from bench.harness.spark_driver import JobFailed, SparkDriver
from shuffle_plugins.spark import SUPPORTED_SPARK, find_jar, spark_conf
from tests.spark import held, jobs, observe
from tests.spark.conftest import SORT_SHUFFLE, pushed_bytes
from tests.spark.server import Server
from tools import other_packages

# The first one downloads a PySpark.
pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(other_packages.INSTALL_TIMEOUT_S + 1200)]

VERSIONS = os.environ.get("SPARK_VERSIONS", "4.0.0").split()
JOBS: tuple[Callable[[SparkSession], Any], ...] = (
    jobs.reduce_by_key,
    jobs.sort_by_key,
    jobs.failing_attempts,
    jobs.sql_skewed_join,
    jobs.sql_window,
)
RECORDS, MAPS, PARTITIONS = 8_000, 8, 4
OF_SELF_TEST = 2  # jobs


@pytest.fixture(scope="module", params=VERSIONS)
def driver(
    request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkDriver]:
    scratch: Path = tmp_path_factory.mktemp(f"spark-{request.param}")
    settings = {"spark.master": "local[2, 2]", "spark.unsafe.exceptionOnMemoryLeak": "true"}  # a task may fail once
    flight = spark_conf(server.control, fallback="never", spark_version=request.param)
    conf = local_conf(scratch) | flight | observe.WITH_UI | settings
    with SparkDriver(
        conf, scratch / "log", other_packages.installed(f"pyspark-{request.param}", f"pyspark=={request.param}")
    ) as running:
        assert running.call(version) == request.param
        yield running


def test_executors_in_processes_of_their_own_have_the_plugin(driver: SparkDriver, server: Server) -> None:
    driver.renew({"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "1g"})
    before = pushed_bytes(server)
    driver.call(held.write, name="apart", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    assert driver.call(held.read, name="apart") == held.expected(RECORDS, PARTITIONS)
    assert pushed_bytes(server) > before
    driver.renew({})


def version(spark: SparkSession) -> str:
    return spark.version


def jobs_so_far(spark: SparkSession) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


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


def test_later_spark_is_used_after_a_self_test_unless_that_is_refused(server: Server, tmp_path: Path) -> None:
    """The installed Spark, in which a jar that was tested with older ones only tests itself."""
    minors = SUPPORTED_SPARK[:-1]
    jar = older_jar(tmp_path, minors)
    conf = local_conf(tmp_path) | spark_conf(server.control, fallback="never", jar=jar)
    with SparkDriver(conf, tmp_path / "spark.log") as later:
        answer, alone = later.call(jobs.sql_window), later.call(jobs_so_far)
        assert later.call(jobs.sql_window) == answer
        assert later.call(jobs_so_far) == 2 * alone - OF_SELF_TEST
        log = later.log.read_text()
        assert f"was not tested with Spark {pyspark.__version__}: it tests itself before the first shuffle" in log
        later.renew({"spark.shuffle.flight.allowUntestedSpark": "false"})
        with pytest.raises(JobFailed, match=rf"loaded by Spark {pyspark.__version__}: .*allowUntestedSpark=true"):
            later.call(jobs.sql_window)


def test_later_spark_without_a_method_that_is_used_is_refused_and_the_method_named(
    server: Server, tmp_path: Path
) -> None:
    there, missing = b"getMapSizesByExecutorId", b"getMapSizesByExecutorIx"
    jar = older_jar(tmp_path, SUPPORTED_SPARK[:-1], {there: missing})
    conf = local_conf(tmp_path) | spark_conf(server.control, fallback="never", jar=jar)
    with (
        SparkDriver(conf, tmp_path / "spark.log") as later,
        pytest.raises(JobFailed, match=r"self-test failed in Spark .*MapOutputTracker\.getMapSizesByExecutorIx\("),
    ):
        later.call(jobs.sql_window)


def older_jar(directory: Path, minors: Sequence[str], replaced: Mapping[bytes, bytes] | None = None) -> Path:
    """The installed Spark's jar as one that was tested with ``minors``; ``replaced`` in its classes."""
    jar = directory / "flight-shuffle-spark_older-0.1.0.jar"
    with zipfile.ZipFile(find_jar()) as old, zipfile.ZipFile(jar, "w") as new:
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename == "flight-shuffle-spark.properties":
                content = f"version=0.1.0\nspark.minors={' '.join(minors)}\n".encode()
            for before, after in (replaced or {}).items():
                content = content.replace(before, after)
            new.writestr(entry, content)
    return jar
