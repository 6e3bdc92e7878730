"""Schedules of Spark: a standalone cluster with two executors, kept for all of them, and a job of two stages each.

``executor``, ``worker``, ``master`` and ``server`` are killed in the middle of a task and started again at once;
``worker for good`` loses its files, too; of ``outputs`` some vanish from the disk between the stages. Each answer must
be right, and the maps that ran again after they had succeeded must be exactly those that were lost.
"""

from __future__ import annotations

import atexit
import itertools
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from bench.harness.spark_driver import JobFailed
from tests.faults.explore import spark_cluster, spark_server
from tests.faults.explore.ledger import Finding
from tests.faults.explore.schedule import Fault, Schedule
from tests.faults.explore.spark_run import Run
from tests.spark import observe

SETTINGS = observe.WITH_UI | {"spark.executor.memory": "1g", "spark.executor.cores": "2", "spark.task.maxFailures": "8"}


class SparkScene(Protocol):
    """What jobs of Spark run on."""

    def run(self, group: str, fault: Fault) -> Run: ...


_lock = threading.Lock()
_scenes: dict[str, tuple[SparkScene, ExitStack]] = {}
_numbers = itertools.count()


def run_spark(schedule: Schedule, root: Path) -> list[Finding]:
    """What was wrong in one run. One runs at a time."""
    with _lock:
        scene = _scene(schedule, root)
        found: list[Finding] = []
        for fault in schedule.faults:
            try:
                run = scene.run(f"run-{next(_numbers)}", fault)
            except (JobFailed, TimeoutError) as failed:
                _forget(schedule)
                kind = "hang" if isinstance(failed, TimeoutError) else "error"
                return [*found, Finding(kind, f"{fault}: {failed}")]
            if not run.right:
                found.append(Finding("lost", f"{fault}: the answer is wrong"))
            if not run.as_it_must_be:
                found.append(Finding("dropped", f"{fault}: {run}"))
        return found


def close_spark() -> None:
    """End the clusters."""
    with _lock:
        while _scenes:
            _scenes.popitem()[1][1].close()


atexit.register(close_spark)


def _scene(schedule: Schedule, root: Path) -> SparkScene:
    """The cluster of this kind, which outlives the schedule that starts it."""
    if schedule.case not in _scenes:
        kind, stack = schedule.case.replace(" ", "-"), ExitStack()
        scratch = root.parent / f"spark-{kind}-{next(_numbers)}"
        scratch.mkdir()
        try:
            made: SparkScene
            if schedule.topology == "server":
                made = stack.enter_context(spark_server.scene(scratch, SETTINGS))
            else:
                made = stack.enter_context(spark_cluster.scene(scratch, SETTINGS, schedule.case == "by file"))
        except BaseException:
            stack.close()
            raise
        _scenes[schedule.case] = made, stack
    return _scenes[schedule.case][0]


def _forget(schedule: Schedule) -> None:
    """It is of no more use."""
    _scenes.pop(schedule.case)[1].close()
