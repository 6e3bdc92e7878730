"""Shuffles of the JVM's own RDDs. PySpark's are all alike to Spark: pickled batches, no aggregator, no ordering.

Here Spark combines values before they are written, and sorts keys as they are read. Answers are the text that Java
makes of each partition, taken apart: fetching objects one by one is slow.
"""

import re
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

RECORDS, KEYS, MAPS, PARTITIONS = 6_000, 97, 4, 5
COPIES = 3
PAIR = re.compile(r"\((\d+),(\d+|\[[\d, ]*\])\)")

Partitions = list[list[Any]]


def distinct(spark: SparkSession) -> Partitions:
    """``reduceByKey`` with map-side combine: of the copies of a value in one map, one is written."""
    one = _longs(spark, "id")
    copies = one
    for _ in range(COPIES - 1):
        copies = copies.union(one)
    found = copies.coalesce(2).distinct(PARTITIONS).glom().collect()
    return [sorted(re.findall(r"\d+", part.toString())) for part in found]


def aggregate_by_key(spark: SparkSession) -> Partitions:
    """``aggregateByKey`` with a combiner that is no value: sketches, the same in whatever order they are merged."""
    return [sorted(part) for part in _pairs_of(_sketches(spark))]


def group_by_key(spark: SparkSession) -> Partitions:
    """An aggregator without map-side combine."""
    return [
        sorted((key, sorted(re.findall(r"\d+", values))) for key, values in part)
        for part in _pairs_of(_pairs(spark).groupByKey(PARTITIONS))
    ]


def sort_by_key(spark: SparkSession) -> Partitions:
    """A range partitioner and an ordering: the order of keys is the result. Where partitions end, a sample decides."""
    return [[key for part in _pairs_of(_pairs(spark).sortByKey(False, PARTITIONS)) for key, _ in part]]


def sort_within_partitions(spark: SparkSession) -> Partitions:
    found = _pairs_of(_pairs(spark).repartitionAndSortWithinPartitions(_by_hash(spark)))
    return [[key for key, _ in part] for part in found]


def combined_and_sorted(spark: SparkSession) -> Partitions:
    """An aggregator, map-side combine and an ordering in one shuffle, which no method of ``RDD`` asks for."""
    jvm = spark._jvm
    assert jvm is not None
    classes = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("java.lang.Object"))
    sketching = _sketched(spark).dependencies().head()
    shuffled = jvm.org.apache.spark.rdd.ShuffledRDD(_pairs(spark).rdd(), _by_hash(spark), classes, classes, classes)
    shuffled = shuffled.setAggregator(sketching.aggregator().get()).setMapSideCombine(True)
    natural = jvm.scala.math.Ordering.comparatorToOrdering(jvm.java.util.Comparator.reverseOrder())
    found = jvm.org.apache.spark.api.java.JavaPairRDD(shuffled.setKeyOrdering(natural), classes, classes).keys()
    return [re.findall(r"\d+", part.toString()) for part in found.glom().collect()]


JOBS: tuple[Callable[[SparkSession], Partitions], ...] = (
    distinct,
    aggregate_by_key,
    group_by_key,
    sort_by_key,
    sort_within_partitions,
    combined_and_sorted,
)


def _longs(spark: SparkSession, expression: str) -> Any:
    frame = spark.range(0, RECORDS, 1, MAPS).selectExpr(expression)
    encoder = spark._jvm.org.apache.spark.sql.Encoders.LONG()  # type: ignore[union-attr]
    return getattr(frame._jdf, "as")(encoder).toJavaRDD()


def _pairs(spark: SparkSession) -> Any:
    return _longs(spark, f"id % {KEYS}").zipWithUniqueId()


def _sketches(spark: SparkSession) -> Any:
    return _pairs(spark).countApproxDistinctByKey(0.05, PARTITIONS)


def _sketched(spark: SparkSession) -> Any:
    """The shuffled RDD of `_sketches`, whose parent counts what the sketches hold."""
    rdd = _sketches(spark).rdd()
    while "ShuffledRDD" not in rdd.toString().splitlines()[0]:
        rdd = rdd.dependencies().head().rdd()
    return rdd


def _by_hash(spark: SparkSession) -> Any:
    return spark._jvm.org.apache.spark.HashPartitioner(PARTITIONS)  # type: ignore[union-attr]


def _pairs_of(rdd: Any) -> Partitions:
    return [PAIR.findall(part.toString()) for part in rdd.glom().collect()]
