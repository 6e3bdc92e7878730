"""Schedules of Spark: a job of two stages on servers of its own.

A standalone cluster with two workers and a driver's JVM are kept for the schedules to come, and ended when one was
wrong.
"""

from __future__ import annotations

import atexit
import itertools
from contextlib import ExitStack
from pathlib import Path

from bench.harness.spark import local_conf
from bench.harness.spark_driver import SparkDriver
from shuffle_plugins.spark import find_jar, spark_conf
from tests.faults.explore.cluster import Scene
from tests.faults.explore.ledger import Finding
from tests.faults.explore.schedule import Schedule
from tests.faults.explore.spark_run import SparkRun
from tests.spark import observe
from tests.spark.standalone import Standalone

SETTINGS = observe.WITH_UI | {
    "spark.executor.memory": "1g",
    "spark.executor.cores": "2",
    # A fault that lasts costs many attempts.
    "spark.task.maxFailures": "1000",
    "spark.stage.maxConsecutiveAttempts": "1000",
    # An executor that stands still for longer is lost.
    "spark.executor.heartbeatInterval": "1s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "6000",
    "spark.network.timeoutInterval": "1s",
}
RACES = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.efficiency.enabled": "false",
}
NAME = "nightly"


class Place:
    """A cluster of Spark and a driver, for one schedule after the other."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self._stack = ExitStack()
        try:
            self._spark = self._stack.enter_context(Standalone(directory, cores=2))
            conf = local_conf(directory) | {"spark.jars": str(find_jar())}
            self.driver = self._stack.enter_context(SparkDriver(conf, directory / "spark.log"))
        except BaseException:
            self._stack.close()
            raise

    def conf(self, schedule: Schedule, server: str) -> dict[str, str]:
        """Settings of the schedule's driver."""
        options = dict(schedule.options) | {"app": NAME}
        flight = spark_conf(server, fallback="never", options=options)
        races = RACES if schedule.races else {}
        return local_conf(self.directory) | SETTINGS | races | flight | {"spark.master": self._spark.url}

    def close(self) -> None:
        self._stack.close()


_idle: list[Place] = []
_numbers = itertools.count()


def run_spark(schedule: Schedule, scene: Scene) -> list[Finding]:
    """What was wrong in one run."""
    number = next(_numbers)
    try:
        place = _idle.pop()
    except IndexError:
        place = Place(scene.root.parent / f"spark-{number}")
    (scene.root / "spark").symlink_to(place.directory)  # its logs
    try:
        conf = place.conf(schedule, scene.server)
        place.driver.configure(conf)
        another = conf | {"spark.master": "local[2]"}
        run = SparkRun(
            schedule, scene, place.driver, 2 * number, lambda: SparkDriver(another, scene.root / "another.log")
        )
        run.run()
    except BaseException:
        place.close()
        raise
    if run.findings:
        place.close()
    else:
        _idle.append(place)
    return run.findings


def close_spark() -> None:
    """End the clusters."""
    while _idle:
        _idle.pop().close()


atexit.register(close_spark)
