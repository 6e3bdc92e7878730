"""Executors in processes of their own: their pids, and the decommissioning of one."""

import os
import time
from pathlib import Path

from pyspark.sql import SparkSession

DEADLINE_S = 300.0


def pids(spark: SparkSession, executors: int = 2) -> list[int]:
    """Process ids of the executors' JVMs, the parents of the parents of their Python workers; there are so many.

    One that starts late is waited for. After that all have run tasks, and get some of the next job's at once.
    """
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = sorted(set(spark.sparkContext.parallelize(range(8), 8).map(lambda _: _grandparent()).collect()))
        if len(found) == executors:
            return found
        assert time.monotonic() < deadline, f"{len(found)} of {executors} executors run tasks"


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
