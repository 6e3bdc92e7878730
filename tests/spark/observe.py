"""What Spark did, asked inside the driver process through Spark's own REST interface. Needs ``WITH_UI`` settings."""

import json
import re
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from pyspark.sql import SparkSession

WITH_UI = {"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.ui.retainedTasks": "100000"}
TIMEOUT_S = 180
TRIES = 3
"""Spark cuts an answer that it has not made in 8 s, as on a busy machine."""
WHICH_TASK = re.compile(r" \(stage [^)]*\)")


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


@dataclass(frozen=True, slots=True)
class Task:
    """Any task attempt. ``index`` is its partition in the stage; records and bytes are those of shuffles."""

    id: int
    stage: int
    stage_attempt: int
    index: int
    executor: str
    status: str
    speculative: bool
    read_records: int
    read_bytes: int
    written_records: int
    written_bytes: int


def tasks(spark: SparkSession) -> list[Task]:
    """All task attempts since the session started, in the order in which they were launched."""
    return _tasks(_get(spark, "stages?details=true"))


def tasks_of_stages(spark: SparkSession, stages: Iterable[int]) -> list[Task]:
    """All task attempts in all attempts of these stages; stages that were skipped have none."""
    started = {stage["stageId"] for stage in _get(spark, "stages")}
    return _tasks([attempt for stage in stages if stage in started for attempt in _get(spark, f"stages/{stage}")])


def _tasks(stages: Iterable[dict[str, Any]]) -> list[Task]:
    found = []
    for stage in stages:
        for task in stage.get("tasks", {}).values():
            metrics = task.get("taskMetrics", {})
            read, written = metrics.get("shuffleReadMetrics", {}), metrics.get("shuffleWriteMetrics", {})
            found.append(
                Task(
                    id=task["taskId"],
                    stage=stage["stageId"],
                    stage_attempt=stage["attemptId"],
                    index=task["partitionId"],
                    executor=task["executorId"],
                    status=task["status"],
                    speculative=task["speculative"],
                    read_records=read.get("recordsRead", 0),
                    read_bytes=read.get("remoteBytesRead", 0) + read.get("localBytesRead", 0),
                    written_records=written.get("recordsWritten", 0),
                    written_bytes=written.get("bytesWritten", 0),
                )
            )
    return sorted(found, key=lambda task: task.id)


def sql_metrics(spark: SparkSession) -> list[dict[str, str]]:
    """The metrics of each exchange of each SQL query since the session started, as Spark's SQL page shows them.

    But for the number of the task that had most: which one of several equal ones is chance.
    """
    queries = sorted(_get(spark, "sql?details=true&planDescription=false&length=1000"), key=lambda query: query["id"])
    nodes = [node for query in queries for node in query["nodes"] if node["nodeName"] == "Exchange"]
    return [{metric["name"]: WHICH_TASK.sub("", metric["value"]) for metric in node["metrics"]} for node in nodes]


def executors(spark: SparkSession) -> list[str]:
    """Ids of the live executors, without the driver."""
    return sorted(found["id"] for found in _get(spark, "executors") if found["id"] != "driver")


def active_tasks(spark: SparkSession) -> int:
    """Tasks that run now, wherever."""
    return sum(found["activeTasks"] for found in _get(spark, "executors"))


def _get(spark: SparkSession, path: str) -> Any:
    context = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty(TIMEOUT_S * 1000)
    url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/{path}"
    tries = TRIES
    while True:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as reply:
                return json.load(reply)
        except (OSError, HTTPException):
            tries -= 1
            if not tries:
                raise
