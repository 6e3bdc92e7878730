"""A job of Spark: two stages whose tasks say where they are. These functions run in the Spark driver.

The records are those of `tests.faults.explore.records`; Spark's id of a task attempt is their attempt.
"""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from pyspark import RDD, TaskContext
from pyspark.sql import SparkSession

from tests.faults.explore.records import Record, Size, Source, written
from tests.spark import observe

T = TypeVar("T")
KEPT: "dict[int, RDD[Record]]" = {}
"""What each run has shuffled."""


def two_stages(spark: SparkSession, run: int, flags: str, maps: int, size: Size, pause: float) -> list[list[Record]]:
    """What each reduce task has read, in order. A task in its middle writes its executor's process id into a file.

    The files are ``<flags>/map-<n>`` and ``<flags>/reduce-<n>``; the task goes on after ``pause`` seconds. What was
    shuffled is kept for `read`.
    """
    spark.sparkContext.setJobGroup(group(run), "tests.faults.explore")
    tasks = spark.sparkContext.parallelize(range(maps), maps)
    records = tasks.mapPartitionsWithIndex(
        lambda n, _: _held_up(_written(run, n, size), Path(flags, f"map-{n}"), size.records // 2, pause)
    )
    shuffled = KEPT[run] = records.partitionBy(size.partitions, lambda partition: partition)
    middle = maps * size.records // size.partitions // 2
    return shuffled.mapPartitionsWithIndex(
        lambda n, part: [list(_held_up(part, Path(flags, f"reduce-{n}"), middle, pause))]
    ).collect()


def read(spark: SparkSession, run: int) -> list[list[Record]]:
    """The second stage over what is kept, without a stop."""
    spark.sparkContext.setJobGroup(group(run), "tests.faults.explore")
    return KEPT[run].glom().collect()


def written_maps(spark: SparkSession, run: int) -> list[tuple[int, int]]:
    """Id and index of every map task of a run that succeeded, the first and any that ran again."""
    tracker = spark.sparkContext.statusTracker()
    infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group(run))]
    stages = {stage for info in infos if info is not None for stage in info.stageIds}
    tasks = observe.tasks_of_stages(spark, sorted(stages))
    return [(task.id, task.index) for task in tasks if task.status == "SUCCESS" and task.written_bytes]


def group(run: int) -> str:
    """The name of its job group."""
    return f"run-{run}"


def _written(run: int, map: int, size: Size) -> Iterator[Record]:
    context = TaskContext.get()
    assert context is not None
    return written(Source(run, 0, map, context.taskAttemptId()), size)


def _held_up(records: Iterable[T], flag: Path, middle: int, pause: float) -> Iterator[T]:
    for number, record in enumerate(records):
        if number == middle:
            part = flag.with_suffix(f".{os.getpid()}")
            part.write_text(str(_executor()))
            part.rename(flag)
            time.sleep(pause)
        yield record


def _executor() -> int:
    """Process id of the executor's JVM: the parent of the parent of its Python workers."""
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1])
