"""A local Spark session whose every setting is said, so that two runs differ in nothing but what they compare."""

import os
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

JVM_EXIT_TIMEOUT_S = 120


def local_conf(scratch: Path, *, memory: str = "2g", partitions: int = 8) -> dict[str, str]:
    """Settings for ``local[all cores]`` that leave nothing outside ``scratch``.

    Broadcast joins are off: a join is to shuffle, whatever the size of its sides.
    """
    cores = os.cpu_count() or 1
    return {
        "spark.master": f"local[{cores}]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch}",
        "spark.local.dir": str(scratch),
        "spark.log.level": "WARN",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.files.minPartitionNum": str(2 * cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def session(app: str, conf: Mapping[str, str]) -> SparkSession:
    """A new session; the JVM starts with these settings, so there must not be one in this process yet."""
    return SparkSession.builder.appName(app).config(map=dict(conf)).getOrCreate()


def end_jvm() -> None:
    """End this process's JVM and wait for it; call it last.

    PySpark's JVM ends by itself when its standard input closes, but somewhat later than the process that started it.
    """
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    gateway.shutdown()
    process.stdin.close()
    process.wait(JVM_EXIT_TIMEOUT_S)
