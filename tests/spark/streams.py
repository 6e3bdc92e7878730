"""Structured Streaming: micro-batches over files, one file a batch, with state that is kept between them."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

BATCHES, ROWS, KEYS = 3, 2_000, 50
TIMEOUT_S = 450


def make_files(directory: Path) -> None:
    """Lines of ``key,second,value``; every key is in every file."""
    directory.mkdir()
    for batch in range(BATCHES):
        numbers = range(batch * ROWS, (batch + 1) * ROWS)
        (directory / f"{batch}.csv").write_text("".join(f"{i * 7919 % KEYS},{i // 100},{i % 1000}\n" for i in numbers))


def aggregation(spark: SparkSession, files: str, checkpoint: str) -> list[tuple[int, str]]:
    """Sums per key so far: every batch reads the state of the one before. A row for each change of each key."""
    sums = _source(spark, files).groupBy("key").agg(fn.sum("value"), fn.count("*"), fn.max("second"))
    return _run(spark, sums, checkpoint, "update")


def windows_of_first_values(spark: SparkSession, files: str, checkpoint: str) -> list[tuple[int, str]]:
    """Two stateful operators one behind the other, each after a shuffle."""
    timed = _source(spark, files).withColumn("at", fn.timestamp_seconds("second")).withWatermark("at", "5 seconds")
    first = timed.dropDuplicatesWithinWatermark(["key", "value"])
    counted = first.groupBy(fn.window("at", "10 seconds")).agg(fn.count("*"), fn.sum("value"))
    return _run(spark, counted, checkpoint, "append")


def _source(spark: SparkSession, files: str) -> DataFrame:
    reader = spark.readStream.schema("key int, second int, value int").option("maxFilesPerTrigger", 1)
    return reader.csv(files)


def _run(spark: SparkSession, frame: DataFrame, checkpoint: str, mode: str) -> list[tuple[int, str]]:
    """What each batch gave: (batch, row), in order."""
    given: list[tuple[int, str]] = []

    def take(rows: DataFrame, batch: int) -> None:
        given.extend((batch, str(tuple(row))) for row in rows.collect())

    writer = frame.writeStream.foreachBatch(take).outputMode(mode).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(TIMEOUT_S)
    return sorted(given)
