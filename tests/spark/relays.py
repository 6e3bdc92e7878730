"""Queries in real-time mode whose answers outlive them: each row of a result becomes a property of the driver's JVM, at
once, so a query may fail and begin again from its checkpoint. They run in a driver process."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.streaming.real_time_job import add, memory_source
from tests.spark import observe
from tests.spark.real_time import KEYS, TIMEOUT_S, TRIGGER

MAPS, MANY, FEW = 2, 8, 2
"""Of the source; partitions of a shuffle that two workers share, and of one that stays with one worker."""
SLOTS = 2 * (MAPS + MANY) + MAPS + FEW  # tasks of a query that has failed may end when it has begun again
SETTINGS = {
    "spark.master": f"local[{SLOTS}]",
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",  # it knows no `noop` sink
}
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "real_time_words.py"
ROUNDS, ROWS = 6, 50
WIDTH = 4000

Answers = dict[str, str]


def shared(spark: SparkSession, checkpoint: str) -> tuple[Answers, int, int]:
    """The answers of a query with many partitions, and how many records its tasks wrote and read."""
    source, writer = _counts(spark, "shared", MANY, checkpoint)
    query = writer.start()
    for number in range(ROUNDS):
        add(spark, source, _lines(number))
        time.sleep(0.2)
    _await(lambda: _answers(spark, "shared") == expected("shared"), lambda: _answers(spark, "shared"))
    last = _batch(query)
    _await(lambda: _batch(query) > last, lambda: query.recentProgress)  # the batch of the last rows has ended
    query.stop()
    tasks = [task for task in observe.tasks(spark) if task.status == "SUCCESS"]
    written, read = (sum(getattr(task, name) for task in tasks) for name in ("written_records", "read_records"))
    return _answers(spark, "shared"), written, read


def through_a_loss(spark: SparkSession, checkpoint: str, killed: str) -> tuple[Answers, list[str]]:
    """The answers of a query with many partitions and of one with few, and how the former failed.

    The function of the example keeps the former running. The second half of the rows is given when there
    is a file ``killed``. Raises if the query with few partitions failed.
    """
    failures: list[str] = []
    own, others = spark.newSession(), spark.newSession()  # each with its number of partitions, also for another start
    source, writer = _counts(others, "shared", MANY, checkpoint)
    running = Thread(target=_example().keep_running, args=[writer, failures.append], daemon=True)
    running.start()
    own_source, own_writer = _counts(own, "alone", FEW, checkpoint)
    alone = own_writer.start()
    for number in range(ROUNDS):
        if number == ROUNDS // 2:
            _await(Path(killed).exists, lambda: failures)
        add(spark, source, _lines(number))
        add(spark, own_source, _lines(number))
        time.sleep(0.2)
    wanted = expected("shared") | expected("alone")
    _await(lambda: _answers(spark, "shared", "alone") == wanted, lambda: (failures, _answers(spark, "shared", "alone")))
    last = _batch(alone)
    _await(lambda: _batch(alone) > last + 1, lambda: alone.exception())  # a batch that began after the loss has ended
    for query in (*others.streams.active, alone):
        query.stop()
    running.join(TIMEOUT_S)
    return _answers(spark, "shared", "alone"), failures


def words(spark: SparkSession, checkpoint: str) -> dict[str, int]:
    """The counts of words by the example."""
    example = _example()
    source = memory_source(spark)
    given = DataFrame(source.toDF(), spark).withColumnRenamed("value", "word")
    writer = example.counts(given, checkpoint).format("memory").queryName("counts")
    running = Thread(target=example.keep_running, args=[writer], daemon=True)
    running.start()
    add(spark, source, ["to", "be", "or", "not", "to", "be"])
    counts: dict[str, int] = {}
    deadline = time.monotonic() + TIMEOUT_S
    while sum(counts.values()) < 6:
        assert time.monotonic() < deadline, counts
        time.sleep(0.2)
        if spark.catalog.tableExists("counts"):
            counts = dict(sorted(tuple(row) for row in spark.table("counts").coalesce(1).collect()))
    for query in spark.streams.active:
        query.stop()
    running.join(TIMEOUT_S)
    return counts


def wide(spark: SparkSession, checkpoint: str, slow: bool) -> int:
    """Bytes of wide rows, in which much repeats, that a query has answered: of many at once with slow readers, or of a
    few at a time."""
    source = memory_source(spark)
    parts = fn.split("value", ",")
    first, count = parts[0].cast("int"), parts[1].cast("int")
    numbers = DataFrame(source.toDF(), spark).select(fn.explode(fn.sequence(first, first + count - 1)).alias("number"))
    rows = numbers.withColumn("pad", fn.expr(f"repeat(string(number % 10), {WIDTH})")).dropDuplicates(["number"])
    if slow:
        rows = rows.withColumn("slept", fn.expr("java_method('java.lang.Thread', 'sleep', 1L)"))
    name = "slow" if slow else "fast"
    columns = fn.concat_ws(" ", fn.lit(name), *[each for each in rows.columns if each != "pad"])
    query = _writer(spark, rows.select(columns, fn.length("pad").cast("string")), FEW, f"{checkpoint}/{name}").start()
    batches, size = (10, 1000) if slow else (200, 5)
    for number in range(batches):
        add(spark, source, [f"{number * size},{size}"])
        if not slow:
            time.sleep(0.02)
    _await(lambda: len(_answers(spark, name)) == batches * size, lambda: len(_answers(spark, name)))
    query.stop()
    assert set(_answers(spark, name).values()) == {str(WIDTH)}
    return batches * size * WIDTH


def expected(name: str) -> Answers:
    """Counts by key and second at which a window begins."""
    rows = Counter((row % KEYS, number * 5 // 10 * 10) for number in range(ROUNDS) for row in range(ROWS))
    return {f"{name} {key} {second}": str(count) for (key, second), count in rows.items()}


def _lines(number: int) -> list[str]:
    """Lines of ``key,second``."""
    return [f"{row % KEYS},{number * 5}" for row in range(ROWS)]


def _counts(spark: SparkSession, name: str, partitions: int, checkpoint: str) -> tuple[Any, DataStreamWriter]:
    """A source, and the query with the `expected` answers."""
    source = memory_source(spark)
    parts = fn.split("value", ",")
    rows = DataFrame(source.toDF(), spark).select(
        parts[0].alias("key"), fn.timestamp_seconds(parts[1].cast("int")).alias("at")
    )
    counts = rows.groupBy("key", fn.window("at", "10 seconds")).count()
    second = fn.col("window.start").cast("long")
    named = counts.select(fn.concat_ws(" ", fn.lit(name), "key", second), fn.col("count").cast("string"))
    return source, _writer(spark, named, partitions, f"{checkpoint}/{name}")


def _writer(spark: SparkSession, answers: DataFrame, partitions: int, checkpoint: str) -> DataStreamWriter:
    """Of names and values; a later value takes the place of an earlier one."""
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    name, value = answers.toDF("name", "value").columns
    record = fn.expr(f"java_method('java.lang.System', 'setProperty', {name}, {value})")
    recorded = answers.toDF(name, value).select(record)
    writer = recorded.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)
    return writer.trigger(**TRIGGER)


def _example() -> ModuleType:
    spec = spec_from_file_location("real_time_words", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _answers(spark: SparkSession, *names: str) -> Answers:
    jvm: Any = spark._jvm
    known = jvm.java.lang.System.getProperties().stringPropertyNames()
    return {name: jvm.java.lang.System.getProperty(name) for name in known if name.partition(" ")[0] in names}


def _batch(query: StreamingQuery) -> int:
    """The last one that has ended."""
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _await(condition: Callable[[], bool], state: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, state()
        time.sleep(0.1)
