"""Shuffled RDDs that a driver process keeps, so that a test can do something between their writing and their reading.

Their content is known by arithmetic: record i of ``records`` has key ``i % KEYS`` and value ``i + salt``, and PySpark
puts an integer key into partition ``key % partitions``.
"""

import gc
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from pyspark import RDD
from pyspark.sql import SparkSession

KEYS = 97
RANGE = 1_000
HELD: dict[str, "RDD[tuple[int, int]]"] = {}
ROWS: dict[str, Any] = {}


def write(
    spark: SparkSession, name: str, records: int, maps: int, partitions: int, salt: int = 0, pause: float = 0
) -> None:
    """Run the map stage of a new shuffle (and, since Spark has no other way, read it once).

    Each map takes ``pause`` seconds longer than it needs.
    """
    source = spark.sparkContext.parallelize(range(records), maps).mapPartitions(lambda part: _after(pause, part))
    HELD[name] = source.map(lambda i: (i % KEYS, i + salt)).partitionBy(partitions)
    HELD[name].count()


def _after(pause: float, records: Iterable[Any]) -> Iterable[Any]:
    time.sleep(pause)
    return records


def read(spark: SparkSession, name: str, pause: float = 0) -> list[int]:
    """The sum of the values in each partition, read from the shuffle again. Each task waits ``pause`` seconds."""
    return HELD[name].mapPartitions(lambda pairs: [sum(value for _, value in _after(pause, pairs))]).collect()


def expected(records: int, partitions: int, salt: int = 0) -> list[int]:
    """What `read` must return."""
    sums: Counter[int] = Counter()
    for i in range(records):
        sums[i % KEYS % partitions] += i + salt
    return [sums[partition] for partition in range(partitions)]


def drop(spark: SparkSession, name: str) -> None:
    """Forget an RDD, so that Spark's cleaner may unregister its shuffle."""
    del HELD[name]
    collect_garbage(spark)


def clean(spark: SparkSession, name: str) -> None:
    """Have Spark remove the shuffles of an RDD that stays in use, and wait for it."""
    HELD[name]._jrdd.rdd().cleanShuffleDependencies(True)


def count_nothing(spark: SparkSession) -> int:
    """Count what the optimizer knows to be empty: a shuffle without maps."""
    return spark.range(3).where("false").count()


def count_repartitioned(spark: SparkSession) -> int:
    """Count `RANGE` rows behind a shuffle of SQL."""
    return spark.range(RANGE).repartition(3).count()


def collect_garbage(spark: SparkSession) -> None:
    """In Python, whose proxies keep objects of the JVM alive, and then there."""
    gc.collect()
    spark._jvm.java.lang.System.gc()  # type: ignore[union-attr]


def write_rows(spark: SparkSession, name: str, rows: int, maps: int, partitions: int) -> int:
    """Like `write`, for thousands of partitions: rows of SQL, counted inside the JVM, many partitions to a task."""
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # partitions stay as many
    frame = spark.range(0, rows, 1, maps).repartition(partitions, "id")
    ROWS[name] = frame._jdf.queryExecution().toRdd().toJavaRDD().coalesce(16)
    return count_rows(spark, name)


def count_rows(spark: SparkSession, name: str) -> int:
    """Read all partitions from the shuffle again."""
    counted: int = ROWS[name].count()
    return counted


def app_key(spark: SparkSession) -> str:
    """The application's name at the server, which the plugin writes into Spark's configuration."""
    return spark.sparkContext.getConf().get("spark.shuffle.plugin.__config__.flight.app", "")


def user(spark: SparkSession) -> str:
    """Whose the driver is."""
    return str(spark.sparkContext.sparkUser())


def join_with_cached(spark: SparkSession) -> list[tuple[int, int]]:
    """A stage whose partitions are half cached, half read from a shuffle: Spark places its tasks by both.

    Returns keys with the number of joined pairs.
    """
    context = spark.sparkContext
    cached = context.parallelize(range(4_000), 4).map(lambda i: (i % 50, i)).partitionBy(4).cache()
    cached.count()
    try:
        other = context.parallelize(range(500), 4).map(lambda i: (i % 60, i)).partitionBy(4)
        return sorted((key, len(list(pairs))) for key, pairs in other.join(cached).groupByKey().collect())
    finally:
        cached.unpersist()
