"""More reduce partitions than the row writer takes, in a small heap: nobody may keep a buffer for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from bench.harness.spark import local_conf
from bench.harness.spark_driver import SparkDriver
from shuffle_plugins.spark import find_jar
from tests.spark.conftest import flight_conf, pushed_bytes
from tests.spark.server import Server

pytestmark = pytest.mark.spark

PARTITIONS = 12_000
ROWS, MAPS, TASKS = 600_000, 4, 6
KEYS = 50_021
HEAP = "640m"  # 32 KiB for each partition in both map tasks would be more


def _rows(spark: SparkSession) -> pa.Table:
    """Which task read each row, the partition that it must be from, and its number. Each task reads one partition after
    the other, with a reader for each."""
    ids = spark.range(0, ROWS, 1, MAPS).selectExpr(f"id * 7919 % {KEYS} as k", "id", "sha2(string(id), 256) as text")
    shuffled = ids.repartition(PARTITIONS, "k").coalesce(TASKS)
    return shuffled.selectExpr(
        "spark_partition_id() as task",
        f"pmod(hash(k), {PARTITIONS}) as p",
        "if(text = sha2(string(id), 256), id, -1) as id",
    ).toArrow()


def _counted(spark: SparkSession) -> list[tuple[int, int, int]]:
    """Grouped through as many partitions, which AQE makes few tasks of: each reads a run of them."""
    spark.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
    try:
        grouped = spark.range(0, ROWS, 1, MAPS).selectExpr(f"id % {KEYS} as k", "id").groupBy("k")
        counts = grouped.agg({"id": "sum", "*": "count"}).selectExpr("k", "`count(1)`", "`sum(id)`")
        return [tuple(row) for row in counts.collect()]
    finally:
        spark.conf.unset("spark.sql.shuffle.partitions")


@pytest.fixture(scope="module")
def small_jvm(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkDriver]:
    directory = tmp_path_factory.mktemp("small")
    conf = local_conf(directory, memory=HEAP) | {"spark.master": "local[2]", "spark.jars": str(find_jar())}
    with SparkDriver(conf | flight_conf(server), Path(directory / "spark.log")) as driver:
        yield driver


@pytest.mark.parametrize("hand_over", ["auto", pytest.param("off", marks=pytest.mark.nightly)])
def test_twelve_thousand_partitions_hold_what_was_written(
    hand_over: str, small_jvm: SparkDriver, server: Server
) -> None:
    small_jvm.renew({"spark.shuffle.flight.handOver": hand_over})
    before = pushed_bytes(server)
    read = small_jvm.call(_rows)
    task, partition, number = (read.column(name).to_numpy() for name in ("task", "p", "id"))
    assert np.array_equal(np.sort(number), np.arange(ROWS))
    assert len(np.unique(partition)) > 0.9 * PARTITIONS
    for each in range(TASKS):
        assert (np.diff(partition[task == each]) >= 0).all()  # a task's partitions, in order: none has another's rows
    expected = {
        key: (len(ids), int(ids.sum())) for key in range(KEYS) if len(ids := np.arange(key, ROWS, KEYS, dtype=np.int64))
    }
    assert {key: (count, total) for key, count, total in small_jvm.call(_counted)} == expected
    assert pushed_bytes(server) - before > ROWS * 10
