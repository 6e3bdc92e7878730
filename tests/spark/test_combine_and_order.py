"""Shuffles of the JVM that combine and sort, and SQL, with every codec: sort shuffle's answers, and its metrics."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bench.harness.spark_driver import SparkDriver
from tests.spark import jobs, jvm_jobs, observe
from tests.spark.conftest import SORT_SHUFFLE, StartDriver, flight_conf
from tests.spark.server import Server

pytestmark = pytest.mark.spark

Job = Callable[[SparkSession], Any]
SQL: tuple[Job, ...] = (jobs.sql_group_by, jobs.sql_sort_merge_join)
ALL = jvm_jobs.JOBS + SQL
COUNTS = ("shuffle records written", "records read", "data size", "number of partitions")

SETTINGS = observe.WITH_UI | {"spark.unsafe.exceptionOnMemoryLeak": "true"}
SOME = (jvm_jobs.distinct, jvm_jobs.sort_by_key, jobs.sql_group_by)
ENCRYPTED = {"spark.io.encryption.enabled": "true"}
OURS: dict[str, tuple[tuple[Job, ...], dict[str, str]]] = {
    "lz4": (ALL, {"spark.io.compression.codec": "lz4"}),
    "lzf": (SOME, {"spark.io.compression.codec": "lzf"}),
    "snappy": (SOME, {"spark.io.compression.codec": "snappy"}),
    "zstd": (SOME, {"spark.io.compression.codec": "zstd"}),
    "uncompressed": (SOME, {"spark.shuffle.compress": "false", "spark.shuffle.spill.compress": "false"}),
    "encrypted": (SOME, ENCRYPTED),
    "encrypted, uncompressed": (SOME, ENCRYPTED | {"spark.shuffle.compress": "false"}),
    "fetched to files": (SOME, {"spark.network.maxRemoteBlockSizeFetchToMem": "1k"}),
    "kryo, spilling": (
        (*SOME, jvm_jobs.combined_and_sorted, jvm_jobs.aggregate_by_key),
        {
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            "spark.shuffle.sort.bypassMergeThreshold": "1",
            "spark.shuffle.spill.numElementsForceSpillThreshold": "500",
        },
    ),
}


@dataclass(frozen=True, slots=True)
class Ran:
    """Answers, (records written, records read) and bytes of each job; the counts of all exchanges of SQL."""

    answers: dict[str, Any]
    records: dict[str, tuple[int, int]]
    written_bytes: dict[str, int]
    read_bytes: dict[str, int]
    exchanges: dict[str, list[dict[str, str]]]


def run(driver: SparkDriver, chosen: tuple[Job, ...]) -> Ran:
    ran = Ran({}, {}, {}, {}, {})
    tasks_before, exchanges_before = 0, 0
    for job in chosen:
        name = job.__name__
        ran.answers[name] = driver.call(job)
        every = driver.call(observe.tasks)
        tasks, tasks_before = every[tasks_before:], len(every)
        ran.records[name] = (sum(t.written_records for t in tasks), sum(t.read_records for t in tasks))
        ran.written_bytes[name] = sum(t.written_bytes for t in tasks)
        ran.read_bytes[name] = sum(t.read_bytes for t in tasks)
        nodes = driver.call(observe.sql_metrics)
        ran.exchanges[name] = [{count: node[count] for count in COUNTS} for node in nodes[exchanges_before:]]
        exchanges_before = len(nodes)
    return ran


@pytest.fixture(scope="module")
def one_jvm(start_driver: StartDriver, server: Server) -> SparkDriver:
    return start_driver(flight_conf(server) | SETTINGS)


@pytest.fixture(scope="module")
def by_sort_shuffle(one_jvm: SparkDriver) -> Ran:
    one_jvm.renew(SORT_SHUFFLE)
    return run(one_jvm, ALL)


@pytest.fixture(scope="module", params=OURS)
def ran(one_jvm: SparkDriver, by_sort_shuffle: Ran, request: pytest.FixtureRequest) -> Ran:
    chosen, settings = OURS[request.param]
    one_jvm.renew(settings)
    return run(one_jvm, chosen)


def test_answers_and_metrics_equal_sort_shuffles(ran: Ran, by_sort_shuffle: Ran) -> None:
    for name in ran.answers:
        assert ran.answers[name] == by_sort_shuffle.answers[name]
        assert ran.records[name] == by_sort_shuffle.records[name]
        assert ran.exchanges[name] == by_sort_shuffle.exchanges[name]
        assert bool(ran.exchanges[name]) == name.startswith("sql_")
        assert ran.written_bytes[name] > 0
        # To sort in SQL, Spark samples what it then reads again. All else is read once.
        assert ran.read_bytes[name] == ran.written_bytes[name] or name.startswith("sql_")


def test_copies_of_a_value_in_one_map_are_combined_before_they_are_written(by_sort_shuffle: Ran, ran: Ran) -> None:
    given = jvm_jobs.RECORDS * jvm_jobs.COPIES
    assert ran.records["distinct"][0] == 2 * jvm_jobs.RECORDS < given
