"""A job that is cancelled in the middle of writing a shuffle, or of reading one. Needs `observe.WITH_UI`."""

import time
from threading import Thread

from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

from tests.spark import observe

DEADLINE_S = 300.0
GROUP = "to be cancelled"
MAPS, PARTITIONS = 4, 4
SETTINGS = observe.WITH_UI | {"spark.reducer.maxSizeInFlight": "1m"}  # a reader has less on its way than there is

_started: list[Thread] = []
_ended: list[str] = []


def start_writing(spark: SparkSession, *, interrupt: bool) -> None:
    """Start a job whose maps write for longer than a test waits. With ``interrupt`` Spark interrupts their threads."""
    _start(spark, _rows(spark, 1 << 40), interrupt)


def start_reading(spark: SparkSession, *, interrupt: bool) -> None:
    """Start a job that writes a little, reads it, and does so much with each row that the end is far away."""
    _start(spark, _rows(spark, 1_500_000).selectExpr("id", "h", "explode(sequence(0, 100000)) as n"), interrupt)


def cancel(spark: SparkSession) -> str:
    """Cancel the job, wait until it and all its tasks have ended; what the job's caller was told."""
    spark.sparkContext.cancelJobGroup(GROUP)
    thread = _started.pop()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    deadline = time.monotonic() + DEADLINE_S
    while observe.active_tasks(spark):
        assert time.monotonic() < deadline, "tasks of the cancelled job run on"
        time.sleep(0.05)
    return _ended.pop()


def _rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, MAPS).selectExpr("id", "hash(id) as h").repartition(PARTITIONS, "id")


def _start(spark: SparkSession, rows: DataFrame, interrupt: bool) -> None:
    def run() -> None:
        spark.sparkContext.setJobGroup(GROUP, "runs until it is cancelled", interruptOnCancel=interrupt)
        try:
            rows.write.format("noop").mode("overwrite").save()
            _ended.append("it ran to its end")
        except Py4JJavaError as error:
            _ended.append(str(error))

    _started.append(InheritableThread(target=run, session=spark))
    _started[-1].start()
