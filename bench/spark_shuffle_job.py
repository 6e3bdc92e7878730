"""The job that `bench.spark_shuffle` times: its input, the functions that run in the Spark drivers, and its check."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

FILES = 8
SEED = 20_261_121
HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
TEXT = 64  # characters per row
DISTINCT_KEYS = 1_000_000
CHECK_TASKS = 64

# What UnsafeRow takes: length, null bits, four words, the text.
ROW_BYTES = 4 + 8 + 4 * 8 + TEXT


@dataclass(frozen=True, slots=True)
class Stage:
    """Spark's own account of one stage. Seconds are sums over its tasks."""

    tasks: int
    run_s: float
    cpu_s: float
    gc_s: float
    shuffle_write_s: float
    fetch_wait_s: float
    shuffle_write_bytes: int
    shuffle_read_bytes: int
    spilled_bytes: int


@dataclass(frozen=True, slots=True)
class Run:
    """One timed run: wall seconds of the whole query, and its stages (map, reduce)."""

    seconds: float
    stages: tuple[Stage, ...]


def write_input(directory: Path, rows: int) -> None:
    """``rows`` rows of id, k (a million values), x and 64 random hexadecimal characters, as parquet; always the same.

    108 bytes per row as Spark shuffles it: half of that hardly compresses.
    """
    directory.mkdir(parents=True)
    for number, ids in enumerate(np.array_split(np.arange(rows), FILES)):
        random = np.random.default_rng((SEED, number))
        texts = HEX[random.integers(0, 16, (len(ids), TEXT), dtype=np.uint8)]
        offsets = pa.py_buffer(np.arange(0, (len(ids) + 1) * TEXT, TEXT, dtype=np.int32))
        columns = {
            "id": pa.array(ids),
            "k": pa.array(random.integers(0, DISTINCT_KEYS, len(ids))),
            "x": pa.array(random.random(len(ids))),
            "s": pa.StringArray.from_buffers(len(ids), offsets, pa.py_buffer(texts.reshape(-1))),
        }
        pq.write_table(pa.table(columns), directory / f"{number}.parquet", row_group_size=1 << 18, use_dictionary=False)


def checksum(spark: SparkSession, directory: str, partitions: int) -> list[tuple[Any, ...]]:
    """What arrives in each partition: its number, its rows, a digest of them that does not depend on their order."""
    arrived = spark.read.parquet(directory).repartition(partitions, "k")
    digests = arrived.selectExpr("spark_partition_id() as p", "xxhash64(id, k, x, s) as h")
    if partitions > CHECK_TASKS:  # all of them are read all the same; a second shuffle of as many maps is not the point
        digests = digests.coalesce(CHECK_TASKS)
    sums = digests.groupBy("p").agg(fn.count("h"), fn.bit_xor("h")).orderBy("p")
    return [tuple(row) for row in sums.collect()]


def run(spark: SparkSession, directory: str, partitions: int) -> Run:
    """Scan, shuffle into ``partitions`` by key, throw the rows away."""
    context = spark.sparkContext
    group = f"run-{time.monotonic_ns()}"
    frame = spark.read.parquet(directory).repartition(partitions, "k")
    context.setJobGroup(group, "bench.spark_shuffle")
    started = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - started
    return Run(seconds, stages_of(context, group))


def tidy(spark: SparkSession) -> None:
    """Let Spark's cleaner remove the shuffles of finished runs, so that their removal is not timed with the next."""
    for _ in range(4):
        gc.collect()
        spark._jvm.java.lang.System.gc()  # type: ignore[union-attr]
        time.sleep(0.5)


def jvm_pid(spark: SparkSession) -> int:
    gateway: Any = SparkContext._gateway
    pid: int = gateway.proc.pid
    return pid


def stages_of(context: SparkContext, group: str) -> tuple[Stage, ...]:
    """Of the jobs of a group, in the order of their numbers."""
    scala: Any = context._jsc.sc()
    scala.listenerBus().waitUntilEmpty()
    tracker = context.statusTracker()
    ids = sorted(
        stage for job in tracker.getJobIdsForGroup(group) for stage in getattr(tracker.getJobInfo(job), "stageIds", ())
    )
    return tuple(_stage(scala.statusStore().lastStageAttempt(stage)) for stage in ids)


def _stage(data: Any) -> Stage:
    return Stage(
        tasks=data.numCompleteTasks(),
        run_s=data.executorRunTime() / 1e3,
        cpu_s=data.executorCpuTime() / 1e9,
        gc_s=data.jvmGcTime() / 1e3,
        shuffle_write_s=data.shuffleWriteTime() / 1e9,
        fetch_wait_s=data.shuffleFetchWaitTime() / 1e3,
        shuffle_write_bytes=data.shuffleWriteBytes(),
        shuffle_read_bytes=data.shuffleReadBytes(),
        spilled_bytes=data.diskBytesSpilled(),
    )
