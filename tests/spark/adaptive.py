"""SQL jobs in which Spark changes the plan while it runs; each returns the rows, and what became of the plan."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tests.spark import observe

ROWS, MAPS, KEYS = 60_000, 8, 500
SMALL = 50  # rows that are broadcast in the end
HEAVY = ROWS * 3 // 5  # rows of the one key that has 60 % of them


@dataclass(frozen=True, slots=True)
class Ran:
    """``plan`` is the final one. ``tasks`` are those that read from a shuffle."""

    rows: list[tuple[Any, ...]]
    plan: str
    tasks: list[observe.Task]


def coalesced(spark: SparkSession) -> Ran:
    """100 reduce partitions, nearly empty: few tasks read many each."""
    with_many = {"spark.sql.shuffle.partitions": "100"}
    return _run(spark, _table(spark).groupBy("k").agg({"id": "sum", "*": "count"}), with_many)


def by_size(spark: SparkSession) -> Ran:
    """Rows of numbers, which packing makes much smaller, in partitions that are coalesced to a size."""
    settings = {
        "spark.sql.shuffle.partitions": "60",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "100k",
        "spark.sql.adaptive.coalescePartitions.minPartitionSize": "100k",
    }
    numbers = spark.range(0, 4 * ROWS, 1, MAPS).selectExpr(
        "id", f"id % {KEYS} as k", "cast(pmod(hash(id), 9000) as double) / 100 as price", "pmod(hash(id), 50) as n"
    )
    moved = numbers.repartition("id").selectExpr("xxhash64(id, k, price, n) as h")
    return _run(spark, moved.agg(fn.bit_xor("h"), fn.count("h")), settings)


def skew_join(spark: SparkSession, *, split: bool) -> Ran:
    """One key holds 60 % of the rows. Its partition is split by ranges of maps, or not."""
    settings = {
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.adaptive.skewJoin.enabled": str(split).lower(),
        "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "32k",
        "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "2",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16k",
    }
    skewed = spark.range(0, ROWS, 1, MAPS).selectExpr(f"if(id % 5 < 3, 0, id % {KEYS}) as k", "id", "hash(id) as h")
    names = spark.range(0, KEYS, 1, 2).selectExpr("id as k", "concat('n', id) as n")
    return _run(spark, skewed.join(names.hint("merge"), "k"), settings)


def local_read(spark: SparkSession) -> Ran:
    """A sort-merge join becomes a broadcast when one side turns out small; the other is then read map by map."""
    small = _table(spark).where(f"id < {SMALL}").selectExpr("k", "id as other")
    joined = _table(spark).join(small, "k")
    return _run(spark, joined, {"spark.sql.adaptive.autoBroadcastJoinThreshold": "1m"})


def reused(spark: SparkSession) -> Ran:
    """Both sides of the join are the same aggregation: one shuffle is written, and read twice."""
    sums = _table(spark).groupBy("k").agg({"id": "sum"}).withColumnRenamed("sum(id)", "s")
    return _run(spark, sums.alias("a").join(sums.alias("b"), "k").selectExpr("k", "a.s + b.s as total"), {})


def _table(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, MAPS).selectExpr("id", f"id % {KEYS} as k")


def _run(spark: SparkSession, frame: DataFrame, settings: Mapping[str, str]) -> Ran:
    first = len(observe.tasks(spark))
    with _set(spark, settings):
        rows = sorted(tuple(row) for row in frame.collect())
    reading = [task for task in observe.tasks(spark)[first:] if task.read_records]
    return Ran(rows, frame._jdf.queryExecution().executedPlan().toString(), reading)


@contextmanager
def _set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings for a while, then the previous values: unsetting all would leave Spark's defaults, not the session's."""
    before: dict[str, str | None] = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
