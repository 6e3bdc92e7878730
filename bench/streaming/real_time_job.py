"""One query in Spark's real-time mode, fed at a steady rate; how long each row took. Runs in the driver process.

A row carries the time at which it was due to be given to the source. Behind the shuffle and the stateful operator each
row of the result gets the time at which it was computed. Both are of the same clock of the same machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

SOURCES, KEYS = 2, 100
TICK_S = 0.01
TIMEOUT_S = 600.0
START_S = 8  # more than it takes until a query's first row is answered
SETTINGS = {
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",  # it knows no memory sink
}


@dataclass(frozen=True, slots=True)
class Answers:
    """``rows`` in the order of their numbers, without the times; ``latencies_us`` of those after the warm-up."""

    rows: list[tuple[int, ...]]
    latencies_us: list[int]


def run(spark: SparkSession, query: str, rate: int, seconds: float, warm_s: float, checkpoint: str) -> Answers:
    """Feed ``rate`` rows a second for ``warm_s + seconds``, and wait until all of them are answered.

    Raises TimeoutError if they are not, RuntimeError if the query fails.
    """
    count, warm = round(rate * (warm_s + seconds)), round(rate * warm_s)
    source = memory_source(spark)
    # The sink shows its rows when a batch ends; none ends while rows are fed.
    trigger: dict[str, Any] = {"realTime": f"{round(warm_s + seconds) + START_S} seconds"}  # its declared type lacks it
    running = (
        QUERIES[query](_parsed(DataFrame(source.toDF(), spark), rate))
        .withColumn("done", fn.expr("java_method('java.lang.System', 'nanoTime')").cast("long"))
        .writeStream.format("memory")
        .queryName(query)
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .trigger(**trigger)
        .start()
    )
    try:
        _feed(spark, source, rate, count)
        _await(spark, running, query, count)
        found = sorted(tuple(row) for row in spark.table(query).select("number", "result", "due", "done").collect())
    finally:
        running.stop()
        spark.catalog.dropTempView(query)
    return Answers(
        [(number, result) for number, result, _, _ in found],
        [(done - due) // 1000 for number, _, due, done in found if number >= warm],
    )


def memory_source(spark: SparkSession) -> Any:
    """A source for real-time mode that gives what `add` puts in: rows with a string `value`."""
    jvm: Any = spark._jvm
    session: Any = spark
    streams = jvm.org.apache.spark.sql.execution.streaming.sources
    encoder = jvm.org.apache.spark.sql.Encoders.STRING()
    return streams.LowLatencyMemoryStream.apply(session._jsparkSession, SOURCES, encoder)


def add(spark: SparkSession, source: Any, lines: Iterable[str]) -> None:
    """Give a `memory_source` some lines, at once."""
    jvm: Any = spark._jvm
    found = jvm.java.util.ArrayList()
    for line in lines:
        found.add(line)
    source.addData(jvm.scala.jdk.javaapi.CollectionConverters.asScala(found).toSeq())


def _feed(spark: SparkSession, source: Any, rate: int, count: int) -> None:
    """Give the source each row when it is due, a few at a time: those of a tick."""
    a_tick = max(1, round(rate * TICK_S))
    started = time.monotonic()
    for first in range(0, count, a_tick):
        due = started + first / rate
        time.sleep(max(0.0, due - time.monotonic()))
        add(spark, source, [f"{number},{round(due * 1e9)}" for number in range(first, min(first + a_tick, count))])


def _await(spark: SparkSession, running: Any, query: str, count: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while (found := spark.table(query).count()) < count:
        if running.exception() is not None:
            raise RuntimeError(str(running.exception()))
        if time.monotonic() > deadline:
            raise TimeoutError(f"{query}: {found} of {count} rows after {TIMEOUT_S:g} s")
        time.sleep(0.2)


def _parsed(lines: DataFrame, rate: int) -> DataFrame:
    number, due = (fn.split("value", ",")[n].cast("long") for n in (0, 1))
    return lines.select(number.alias("number"), due.alias("due")).withColumn(
        "second", fn.floor(fn.col("number") / rate)
    )


def _duplicates(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["number"]).select("number", fn.col("number").alias("result"), "due")


def _windows(rows: DataFrame) -> DataFrame:
    """Counts by window and key. A row changes one of them, and is the latest of it."""
    windows = rows.groupBy(fn.window(fn.timestamp_seconds("second"), "10 seconds"), fn.col("number") % KEYS)
    return windows.agg(fn.max("number").alias("number"), fn.count("*").alias("result"), fn.max("due").alias("due"))


QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {"duplicates": _duplicates, "windows": _windows}
