"""A job of Spark: two stages whose tasks say where they are. These functions run in the Spark driver.

Record i has key ``i % held.KEYS`` and value i, as in `tests.spark.held`, which knows what must come out.
"""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from tests.spark import held, observe

T = TypeVar("T")

MIDDLE = 200
"""The record of each task before which it stops for a while."""


def two_stages(
    spark: SparkSession, group: str, flags: str, records: int, maps: int, partitions: int, pause: float
) -> list[int]:
    """The sums of the values by partition. A task in its middle writes its executor's process id into a file.

    The files are ``<flags>/map-<n>`` and ``<flags>/reduce-<n>``; the task goes on after ``pause`` seconds. What was
    shuffled is kept for `read`.
    """
    spark.sparkContext.setJobGroup(group, "tests.faults.explore")
    given = spark.sparkContext.parallelize(range(records), maps)
    written = given.mapPartitionsWithIndex(lambda n, part: _held_up(part, Path(flags, f"map-{n}"), pause))
    shuffled = held.HELD["kept"] = written.map(lambda i: (i % held.KEYS, i)).partitionBy(partitions)
    return shuffled.mapPartitionsWithIndex(
        lambda n, part: [sum(value for _, value in _held_up(part, Path(flags, f"reduce-{n}"), pause))]
    ).collect()


def written_maps(spark: SparkSession, group: str) -> list[tuple[int, int]]:
    """Id and index of every map task of a job group that succeeded, the first and any that ran again."""
    tracker = spark.sparkContext.statusTracker()
    infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = {stage for info in infos if info is not None for stage in info.stageIds}
    tasks = observe.tasks_of_stages(spark, sorted(stages))
    return [(task.id, task.index) for task in tasks if task.status == "SUCCESS" and task.written_bytes]


def write(spark: SparkSession, group: str, records: int, maps: int, partitions: int) -> None:
    """Only the first stage; its output is kept for `read`."""
    spark.sparkContext.setJobGroup(group, "tests.faults.explore")
    held.write(spark, name="kept", records=records, maps=maps, partitions=partitions)


def read(spark: SparkSession, group: str) -> list[int]:
    """The second stage over what is kept, without a stop."""
    spark.sparkContext.setJobGroup(group, "tests.faults.explore")
    return held.read(spark, name="kept")


def _held_up(records: Iterable[T], flag: Path, pause: float) -> Iterator[T]:
    for number, record in enumerate(records):
        if number == MIDDLE:
            part = flag.with_suffix(f".{os.getpid()}")
            part.write_text(str(_executor()))
            part.rename(flag)
            time.sleep(pause)
        yield record


def _executor() -> int:
    """Process id of the executor's JVM: the parent of the parent of its Python workers."""
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1])
