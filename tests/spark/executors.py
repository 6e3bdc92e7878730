"""Executors in processes of their own: which there are, and how one is told to leave."""

import os
import time
from pathlib import Path

from pyspark.sql import SparkSession


def pids(spark: SparkSession) -> list[int]:
    """Process ids of the executors' JVMs: the parents of the parents of their Python workers."""
    return sorted(set(spark.sparkContext.parallelize(range(8), 8).map(lambda _: _grandparent()).collect()))


def _grandparent() -> int:
    time.sleep(0.2)  # long enough for each executor to get some of the tasks
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1])


def decommission(spark: SparkSession, executor: str) -> bool:
    """As a cluster manager does that is about to take the executor's machine away. Whether Spark agreed."""
    jvm = spark._jvm
    assert jvm is not None
    why = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("asked by a test", jvm.scala.Option.empty())
    backend = spark.sparkContext._jsc.sc().schedulerBackend()
    accepted: bool = backend.decommissionExecutor(executor, why, False, False)
    return accepted
