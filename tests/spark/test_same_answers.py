"""Every kind of job answers the same through the server as through Spark's own sort shuffle."""

from collections.abc import Callable
from typing import Any

import pytest

from bench.harness.spark_driver import SparkDriver
from tests.spark import jobs
from tests.spark.conftest import SORT_SHUFFLE, StartDriver, flight_conf, pushed_bytes
from tests.spark.server import Server

pytestmark = pytest.mark.spark

Job = Callable[..., Any]
JOBS = jobs.RDD_JOBS + jobs.SQL_JOBS

COMMON = {"spark.master": "local[2, 2]"}  # a task may fail once

# Rows of SQL go through our writer unless it has no memory. Otherwise Spark chooses among three writers of its own, by
# the number of partitions and these settings.
ROW_MEMORY = "spark.shuffle.flight.rowMemory"
# The server is on this host, so map outputs go through its files, but for those of less than a message: these settings
# make messages small, or turn it off.
BY_FILE = {"spark.shuffle.flight.batchSize": "16k", "spark.shuffle.flight.blockSize": "8k"}
BY_WIRE = {"spark.shuffle.flight.handOver": "off"}
WRITERS = {
    "by_wire": {"spark.unsafe.exceptionOnMemoryLeak": "true"} | BY_WIRE,
    "by_file": {"spark.unsafe.exceptionOnMemoryLeak": "true"} | BY_FILE,
    "no_bypass_spilling_kryo": BY_FILE
    | {
        ROW_MEMORY: "0",
        "spark.shuffle.sort.bypassMergeThreshold": "1",
        "spark.shuffle.spill.numElementsForceSpillThreshold": "900",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    },
}


@pytest.fixture(scope="module")
def one_jvm(start_driver: StartDriver, server: Server) -> SparkDriver:
    """All sessions run in it, one after the other."""
    return start_driver(COMMON | flight_conf(server))


@pytest.fixture(scope="module")
def answers(one_jvm: SparkDriver) -> dict[Job, Any]:
    """Sort shuffle's."""
    one_jvm.renew(SORT_SHUFFLE)
    return {job: one_jvm.call(job) for job in JOBS}


@pytest.fixture(scope="module", params=WRITERS)
def driver(one_jvm: SparkDriver, answers: dict[Job, Any], request: pytest.FixtureRequest) -> SparkDriver:
    one_jvm.renew(WRITERS[request.param])
    return one_jvm


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_answer_equals_sort_shuffles(job: Job, driver: SparkDriver, answers: dict[Job, Any], server: Server) -> None:
    before = pushed_bytes(server)
    assert driver.call(job) == answers[job]
    assert pushed_bytes(server) > before or job is jobs.empty  # it did go through the server


@pytest.mark.parametrize(
    "settings",
    [
        {"spark.io.compression.codec": "zstd", ROW_MEMORY: "160k"},  # the least that eight partitions can have
        {"spark.io.compression.codec": "snappy"},
        {"spark.shuffle.compress": "false", "spark.sql.adaptive.enabled": "false"},
        {"spark.io.encryption.enabled": "true"},  # goes to Spark's writers
    ],
    ids=lambda settings: "-".join(settings.values()),
)
def test_rows_of_sql_equal_sort_shuffles_whatever_the_codec(
    settings: dict[str, str], one_jvm: SparkDriver, answers: dict[Job, Any], server: Server
) -> None:
    one_jvm.renew({"spark.unsafe.exceptionOnMemoryLeak": "true"} | settings)
    for job in jobs.SQL_JOBS:
        before = pushed_bytes(server)
        assert one_jvm.call(job) == answers[job], job.__name__
        assert pushed_bytes(server) > before
