"""What adaptive execution made of a query, read from its final plan inside the driver process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from bench.spark_jobs import stages_of

READ, JOIN = "AQEShuffleRead", "Join"


@dataclass(frozen=True, slots=True)
class Decided:
    """``decisions``, in the order of the plan: which joins there are (and whether they are split for skew), and of each
    adapted read of a shuffle how and into how many partitions. ``bytes`` are those that all its shuffles wrote."""

    rows: list[tuple[Any, ...]]
    decisions: list[str]
    partitions: int
    bytes: int


def decided(spark: SparkSession, sql: str, group: str) -> Decided:
    """Run a query, in a job group of its own."""
    spark.sparkContext.setJobGroup(group, "plans")
    frame = spark.sql(sql)
    rows = [tuple(row) for row in frame.collect()]
    found: list[str] = []
    partitions = _look_at(frame._jdf.queryExecution().executedPlan(), found)
    written = sum(stage.shuffle_write_bytes for stage in stages_of(spark.sparkContext, group))
    return Decided(rows, found, partitions, written)


def _look_at(node: Any, found: list[str]) -> int:
    """Add the decisions of a plan and all below it; the partitions of its reads of shuffles."""
    name, partitions = str(node.nodeName()), 0
    kind = str(node.getClass().getSimpleName())
    if kind == "AQEShuffleReadExec":
        partitions = int(node.partitionSpecs().length())
        found.append(f"{str(node.simpleString(25)).strip()} {partitions}")
    elif JOIN in name:
        found.append(name)
    below = [node.children(), node.subqueries()]
    if kind == "AdaptiveSparkPlanExec":
        partitions += _look_at(node.executedPlan(), found)
    elif kind.endswith("QueryStageExec"):
        partitions += _look_at(node.plan(), found)
    for nodes in below:
        partitions += sum(_look_at(nodes.apply(at), found) for at in range(nodes.size()))
    return partitions
