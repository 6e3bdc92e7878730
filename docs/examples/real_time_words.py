"""Counts of words in Spark's real-time mode, from Kafka to the console. The query outlives the workers that relay it.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0 \\
      $(flight-shuffle spark-conf --server HOST:PORT --real-time) real_time_words.py BROKERS TOPIC CHECKPOINT

When a worker is lost, Spark fails the query. Started again, it runs the batch again from its checkpoint.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter


def main(brokers: str, topic: str, checkpoint: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", brokers).option("subscribe", topic)
    words = source.load().selectExpr("cast(value as string) as word")
    keep_running(counts(words, checkpoint).format("console"))


def counts(words: DataFrame, checkpoint: str) -> DataStreamWriter:
    """How often each `word` has come: a row for each change."""
    counted = words.groupBy("word").count().writeStream.outputMode("update").option("checkpointLocation", checkpoint)
    real_time: dict[str, Any] = {"realTime": "5 seconds"}  # which the declared type of `trigger` does not know
    return counted.trigger(**real_time)


def keep_running(query: DataStreamWriter, failed: Callable[[str], object] = print) -> None:
    """Run a query until it is stopped: start it again when it has failed."""
    while True:
        try:
            query.start().awaitTermination()
            return
        except StreamingQueryException as failure:
            failed(str(failure))


if __name__ == "__main__":
    main(*sys.argv[1:])
