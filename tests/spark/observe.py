"""What Spark did, asked inside the driver process through Spark's own REST interface. Needs ``WITH_UI`` settings."""

import json
import urllib.request
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

WITH_UI = {"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.ui.retainedTasks": "100000"}
TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class MapTask:
    """A successful task that wrote to a shuffle: which map it was, where it ran, and what it wrote."""

    id: int
    map: int
    executor: str
    bytes: int


def map_tasks(spark: SparkSession) -> list[MapTask]:
    """All successful map tasks since the session started, in the order in which they were launched."""
    found = []
    for stage in _get(spark, "stages"):
        if stage["shuffleWriteBytes"] == 0:
            continue
        for task in _get(spark, f"stages/{stage['stageId']}/{stage['attemptId']}/taskList?length=100000"):
            written = task.get("taskMetrics", {}).get("shuffleWriteMetrics", {}).get("bytesWritten", 0)
            if task["status"] == "SUCCESS" and written:
                found.append(MapTask(task["taskId"], task["partitionId"], task["executorId"], written))
    return sorted(found, key=lambda task: task.id)


def _get(spark: SparkSession, path: str) -> Any:
    context = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/{path}"
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as reply:
        return json.load(reply)
