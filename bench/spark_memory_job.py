"""The job that `bench.spark_memory` times: rows that are made in the map tasks, repartitioned and summed up."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from bench.spark_shuffle_job import stages_of

COLUMNS = ("id", "id * 2 as a", "id % 100 as b")


@dataclass(frozen=True, slots=True)
class Run:
    """Wall seconds of a run, the bytes of its map outputs, and those of its spills."""

    seconds: float
    written: int
    spilled: int


def run(spark: SparkSession, rows: int, maps: int, partitions: int) -> Run:
    """One repartition by key, of which every row is read. Raises unless the sums are right."""
    group = f"run-{time.monotonic_ns()}"
    frame = spark.range(0, rows, 1, maps).selectExpr(*COLUMNS).repartition(partitions, "id")
    spark.sparkContext.setJobGroup(group, "bench.spark_memory")
    started = time.perf_counter()
    [found] = frame.selectExpr("count(*)", "sum(id)", "sum(a)", "sum(b)").collect()
    seconds = time.perf_counter() - started
    whole = rows * (rows - 1) // 2
    right = (rows, whole, 2 * whole, sum(range(100)) * (rows // 100) + sum(range(rows % 100)))
    if tuple(found) != right:
        raise AssertionError(f"the rows sum up to {tuple(found)}, not {right}")
    stages: Any = stages_of(spark.sparkContext, group)
    return Run(
        seconds, max(stage.shuffle_write_bytes for stage in stages), sum(stage.spilled_bytes for stage in stages)
    )
