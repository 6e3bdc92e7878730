"""Shuffles of the JVM that combine and sort, and SQL, with every codec: sort shuffle's answers, and its metrics."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bench.spark_driver import SparkDriver
from tests.spark import jobs, jvm_jobs, observe
from tests.spark.conftest import SORT_SHUFFLE, StartDriver, flight_conf
from tests.spark.server import Server

pytestmark = pytest.mark.spark

Job = Callable[[SparkSession], Any]
SQL: tuple[Job, ...] = (jobs.sql_group_by, jobs.sql_sort_merge_join)
COUNTS = ("shuffle records written", "records read", "data size", "number of partitions")

SETTINGS = observe.WITH_UI | {"spark.unsafe.exceptionOnMemoryLeak": "true"}
OURS = {
    "lz4": {"spark.io.compression.codec": "lz4"},
    "lzf": {"spark.io.compression.codec": "lzf"},
    "snappy": {"spark.io.compression.codec": "snappy"},
    "zstd": {"spark.io.compression.codec": "zstd"},
    "uncompressed": {"spark.shuffle.compress": "false", "spark.shuffle.spill.compress": "false"},
    "encrypted": {"spark.io.encryption.enabled": "true"},
    "encrypted, uncompressed": {"spark.io.encryption.enabled": "true", "spark.shuffle.compress": "false"},
    "kryo, spilling": {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.shuffle.sort.bypassMergeThreshold": "1",
        "spark.shuffle.spill.numElementsForceSpillThreshold": "500",
    },
}


@dataclass(frozen=True, slots=True)
class Ran:
    """Answers, (records written, records read) and bytes of each job; the counts of all exchanges of SQL."""

    answers: dict[str, Any]
    records: dict[str, tuple[int, int]]
    written_bytes: dict[str, int]
    read_bytes: dict[str, int]
    exchanges: list[dict[str, str]]


def run(driver: SparkDriver) -> Ran:
    answers, records, written, read = {}, {}, {}, {}
    seen = 0
    for job in jvm_jobs.JOBS + SQL:
        answers[job.__name__] = driver.call(job)
        every = driver.call(observe.tasks)
        tasks, seen = every[seen:], len(every)
        records[job.__name__] = (sum(t.written_records for t in tasks), sum(t.read_records for t in tasks))
        written[job.__name__] = sum(t.written_bytes for t in tasks)
        read[job.__name__] = sum(t.read_bytes for t in tasks)
    exchanges = [{name: node[name] for name in COUNTS} for node in driver.call(observe.sql_metrics)]
    return Ran(answers, records, written, read, exchanges)


@pytest.fixture(scope="module")
def one_jvm(start_driver: StartDriver, server: Server) -> SparkDriver:
    return start_driver(flight_conf(server) | SETTINGS)


@pytest.fixture(scope="module")
def by_sort_shuffle(one_jvm: SparkDriver) -> Ran:
    one_jvm.renew(SORT_SHUFFLE)
    return run(one_jvm)


@pytest.fixture(scope="module", params=OURS)
def ran(one_jvm: SparkDriver, by_sort_shuffle: Ran, request: pytest.FixtureRequest) -> Ran:
    one_jvm.renew(OURS[request.param])
    return run(one_jvm)


def test_answers_and_metrics_equal_sort_shuffles(ran: Ran, by_sort_shuffle: Ran) -> None:
    assert ran.answers == by_sort_shuffle.answers
    assert ran.records == by_sort_shuffle.records
    assert ran.exchanges == by_sort_shuffle.exchanges
    assert ran.exchanges
    assert min(ran.written_bytes.values()) > 0
    read_once = [job.__name__ for job in jvm_jobs.JOBS]  # to sort in SQL, Spark samples what it then reads again
    assert [ran.read_bytes[name] for name in read_once] == [ran.written_bytes[name] for name in read_once]
    assert min(ran.read_bytes.values()) > 0


def test_copies_of_a_value_in_one_map_are_combined_before_they_are_written(by_sort_shuffle: Ran, ran: Ran) -> None:
    given = jvm_jobs.RECORDS * jvm_jobs.COPIES
    assert ran.records["distinct"][0] == 2 * jvm_jobs.RECORDS < given
