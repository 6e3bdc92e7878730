"""Many tiny shuffles that are dropped, and what a process keeps of them. It runs in a driver process."""

import os
import re
import shutil
import subprocess
import time
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.spark import held, leaks

AT_ONCE = 10
ROWS, MAPS, PARTITIONS = 40, 2, 2
TOTAL = re.compile(r"^Total\s+\d+\s+(\d+)", re.MULTILINE)
OURS = re.compile(r"^\s*\d+:\s+(\d+)\s+\d+\s+(org\.apache\.spark\.shuffle\.flight\.[\w.]*[A-Z][\w$]*)", re.MULTILINE)


def shuffles(spark: SparkSession, count: int) -> int:
    """Rows that come out of `count` shuffles, a multiple of `AT_ONCE`, which nothing refers to afterwards."""
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    rows = 0
    for _ in range(count // AT_ONCE):
        parts = [spark.range(0, ROWS, 1, MAPS).repartition(PARTITIONS, "id") for _ in range(AT_ONCE)]
        rows += reduce(DataFrame.union, parts).count()
    return rows


def local_files(spark: SparkSession) -> int:
    """Files of map outputs below `spark.local.dir`, after a collection of garbage."""
    held.collect_garbage(spark)
    time.sleep(0.2)
    root = spark.sparkContext.getConf().get("spark.local.dir", "")
    return len(list(Path(root).rglob("shuffle_*.data"))) + len(list(Path(root).rglob("shuffle_*.index")))


def kept(spark: SparkSession) -> dict[str, int]:
    """Of this process's JVM: live objects of the plugin by class, its threads, all descriptors, bytes of heap."""
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    jcmd = shutil.which("jcmd")
    assert jcmd is not None, "jcmd is a part of the JDK"
    histogram = subprocess.run(
        [jcmd, str(pid), "GC.class_histogram"], capture_output=True, text=True, timeout=300, check=True
    ).stdout
    found = {name: int(count) for count, name in OURS.findall(histogram)}
    assert found, histogram[:1000]
    [heap] = TOTAL.findall(histogram)
    found["heap"] = int(heap)
    found["threads"] = len(leaks.threads(spark))  # Spark's own pools grow as they are used
    found["descriptors"] = len(os.listdir(f"/proc/{pid}/fd"))
    return found
