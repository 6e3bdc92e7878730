"""Queries in real-time mode. They run in a driver process; rows come from memory, without Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from bench.streaming.real_time_job import add, memory_source

SLOTS = 10  # of two queries with two maps and two reducers each, all of which run at once, and some to spare
ROUNDS, ROWS, KEYS = 4, 60, 7
TIMEOUT_S = 450.0
TRIGGER: dict[str, Any] = {"realTime": "5 seconds"}  # which its declared type does not know
SETTINGS = {
    "spark.master": f"local[{SLOTS}]",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",  # it knows no memory sink
}

Rows = list[str]


def answers(spark: SparkSession, checkpoint: str) -> dict[str, Rows]:
    """What each query gave, in order of the rows' text: a row for each change."""
    queries: dict[str, Callable[[DataFrame], DataFrame]] = {"duplicates": _duplicates, "windows": _windows}
    sources = {name: memory_source(spark) for name in queries}
    running = [
        query(_parsed(spark, sources[name]))
        .writeStream.format("memory")
        .queryName(name)
        .outputMode("update")
        .option("checkpointLocation", f"{checkpoint}/{name}")
        .trigger(**TRIGGER)
        .start()
        for name, query in queries.items()
    ]
    for round_number in range(ROUNDS):
        for source in sources.values():
            add(spark, source, _lines(round_number))
        time.sleep(0.3)
    expected = {"duplicates": ROWS, "windows": ROUNDS * ROWS}
    deadline = time.monotonic() + TIMEOUT_S
    while any(_count(spark, name) < expected[name] for name in queries):
        failures = [str(query.exception()) for query in running if query.exception() is not None]
        counts = {name: _count(spark, name) for name in queries}
        assert not failures, failures
        assert time.monotonic() < deadline, f"{counts} rows instead of {expected}"
        time.sleep(0.2)
    for query in running:
        query.stop()
    return {name: sorted(str(tuple(row)) for row in spark.table(name).collect()) for name in queries}


def _count(spark: SparkSession, name: str) -> int:
    """By one task: more would take the slots that a query needs for its next batch, all at once, or it fails."""
    return spark.table(name).coalesce(1).count()


def _lines(round_number: int) -> list[str]:
    """Lines of ``key,second,number``; each round has the same keys and numbers, later."""
    return [f"{row % KEYS},{round_number * 5},{row}" for row in range(ROWS)]


def _parsed(spark: SparkSession, source: Any) -> DataFrame:
    parts = fn.split("value", ",")
    return DataFrame(source.toDF(), spark).select(
        parts[0].cast("int").alias("key"), parts[1].cast("int").alias("second"), parts[2].cast("int").alias("number")
    )


def _duplicates(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["key", "number"]).select("key", "number")


def _windows(rows: DataFrame) -> DataFrame:
    windows = rows.groupBy(fn.window(fn.timestamp_seconds("second"), "10 seconds"), "key")
    return windows.count().select("window.start", "key", "count")
