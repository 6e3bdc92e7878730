"""The Spark side of `bench.python_shuffle`: functions that run in a Spark driver."""

from __future__ import annotations

import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn


def run(spark: SparkSession, directory: str, partitions: int) -> float:
    """Scan, repartition by `k`, take every row and throw it away; the seconds it took."""
    frame = spark.read.parquet(directory).repartition(partitions, "k")
    started = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


def check(spark: SparkSession, directory: str, partitions: int) -> list[int]:
    """The fields of the digest of all rows, partition by partition."""
    arrived = spark.read.parquet(directory).repartition(partitions, "k").withColumn("p", fn.spark_partition_id())
    parts = arrived.groupBy("p").agg(
        fn.count("id").alias("rows"),
        fn.sum("id").alias("ids"),
        fn.sum("k").alias("key_sum"),
        fn.sum(fn.octet_length("s")).alias("characters"),
        fn.countDistinct("k").alias("keys"),
    )
    return list(parts.agg(*(fn.sum(name) for name in ("rows", "ids", "key_sum", "characters", "keys"))).collect()[0])
