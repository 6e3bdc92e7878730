"""What the drivers of Spark benchmarks run (`bench.harness.spark_driver`): jobs, their input, their checks."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
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
RANDOM_BYTES = 1_000  # of each row
TINY_ROWS = 1_000

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
    """One timed run: wall seconds of the whole query, and its stages if they are of interest."""

    seconds: float
    stages: tuple[Stage, ...] = ()


def write_input(directory: Path, rows: int) -> None:
    """``rows`` rows of id, k (a million values), x and 64 random hexadecimal characters, as parquet; always the same.

    108 bytes per row as Spark shuffles it: half of that hardly compresses.
    """

    def table(ids: np.ndarray, random: np.random.Generator) -> pa.Table:
        texts = HEX[random.integers(0, 16, (len(ids), TEXT), dtype=np.uint8)]
        offsets = pa.py_buffer(np.arange(0, (len(ids) + 1) * TEXT, TEXT, dtype=np.int32))
        columns = {
            "id": pa.array(ids),
            "k": pa.array(random.integers(0, DISTINCT_KEYS, len(ids))),
            "x": pa.array(random.random(len(ids))),
            "s": pa.StringArray.from_buffers(len(ids), offsets, pa.py_buffer(texts.reshape(-1))),
        }
        return pa.table(columns)

    _write(directory, rows, table)


def write_random(directory: Path, rows: int) -> None:
    """``rows`` rows of a key k and 1,000 random bytes, as parquet; always the same."""

    def table(ids: np.ndarray, random: np.random.Generator) -> pa.Table:
        payload = pa.py_buffer(random.bytes(len(ids) * RANDOM_BYTES))
        values = pa.Array.from_buffers(pa.binary(RANDOM_BYTES), len(ids), [None, payload])
        return pa.table({"k": pa.array(ids * 7_919 % 1_000_003), "b": values})

    _write(directory, rows, table, compression="none")


def _write(
    directory: Path, rows: int, table: Callable[[np.ndarray, np.random.Generator], pa.Table], **parquet: str
) -> None:
    directory.mkdir(parents=True)
    for number, ids in enumerate(np.array_split(np.arange(rows), FILES)):
        made, file = table(ids, np.random.default_rng((SEED, number))), directory / f"{number}.parquet"
        pq.write_table(made, file, row_group_size=1 << 18, use_dictionary=False, **parquet)


def load(spark: SparkSession, directory: str, tables: Sequence[str]) -> None:
    """Make ``<directory>/<table>.parquet`` the view ``<table>``, for each."""
    for table in tables:
        spark.read.parquet(str(Path(directory) / f"{table}.parquet")).createOrReplaceTempView(table)


def query(spark: SparkSession, sql: str) -> list[tuple[Any, ...]]:
    """The rows of the answer."""
    return [tuple(row) for row in spark.sql(sql).collect()]


def check_sql(spark: SparkSession, directory: str, tables: Sequence[str], sql: str) -> list[tuple[Any, ...]]:
    load(spark, directory, tables)
    return query(spark, sql)


def timed_sql(spark: SparkSession, directory: str, tables: Sequence[str], sql: str) -> Run:
    load(spark, directory, tables)
    return _timed(lambda: query(spark, sql))


def check_tiny(spark: SparkSession, shuffles: int) -> list[tuple[Any, ...]]:
    return [(row.id,) for row in _tiny(spark)]


def timed_tiny(spark: SparkSession, shuffles: int) -> Run:
    """One job after the other, each with one shuffle of next to nothing: what a shuffle costs before its first byte."""
    return _timed(lambda: [_tiny(spark) for _ in range(shuffles)])


def _tiny(spark: SparkSession) -> list[Any]:
    return spark.range(0, TINY_ROWS, 1, 2).repartition(4, "id").collect()


def checksum(spark: SparkSession, directory: str, partitions: int) -> list[tuple[Any, ...]]:
    """What arrives in each partition: its number, its rows, a digest of them that does not depend on their order."""
    arrived = spark.read.parquet(directory).repartition(partitions, "k")
    digests = arrived.select(fn.spark_partition_id().alias("p"), fn.xxhash64(*arrived.columns).alias("h"))
    if partitions > CHECK_TASKS:  # all of them are read all the same; a second shuffle of as many maps is not the point
        digests = digests.coalesce(CHECK_TASKS)
    sums = digests.groupBy("p").agg(fn.count("h"), fn.bit_xor("h")).orderBy("p")
    return [tuple(row) for row in sums.collect()]


def digest(spark: SparkSession, directory: str, partitions: int) -> list[int]:
    """The fields of `bench.python_shuffle.tasks.Digest` of all rows, partition by partition."""
    arrived = spark.read.parquet(directory).repartition(partitions, "k").withColumn("p", fn.spark_partition_id())
    parts = arrived.groupBy("p").agg(
        fn.count("id").alias("rows"),
        fn.sum("id").alias("ids"),
        fn.sum("k").alias("key_sum"),
        fn.sum(fn.octet_length("s")).alias("characters"),
        fn.countDistinct("k").alias("keys"),
    )
    return list(parts.agg(*(fn.sum(name) for name in ("rows", "ids", "key_sum", "characters", "keys"))).collect()[0])


def repartition(spark: SparkSession, directory: str, partitions: int) -> Run:
    """Scan, shuffle into ``partitions`` by key, throw the rows away."""
    frame = spark.read.parquet(directory).repartition(partitions, "k")
    return _staged(spark, lambda: frame.write.format("noop").mode("overwrite").save())


def sums(spark: SparkSession, rows: int, maps: int, partitions: int, width: int = 0) -> Run:
    """Rows made in so many map tasks, shuffled by key, all of them read.

    A row has three small numbers and ``width`` random ones of 8 bytes. Raises AssertionError if a sum is wrong.
    """
    random = [f"xxhash64(id, {number}) as r{number}" for number in range(width)]
    made = spark.range(0, rows, 1, maps).selectExpr("id", "id * 2 as a", "id % 100 as b", *random)
    parity = [f"bit_xor({' ^ '.join(f'r{number}' for number in range(width))})"] if width else []
    found: list[tuple[Any, ...]] = []

    def read() -> None:
        whole = made.repartition(partitions, "id").selectExpr("count(*)", "sum(id)", "sum(a)", "sum(b)", *parity)
        found.extend(map(tuple, whole.collect()))

    run = _staged(spark, read)
    total = rows * (rows - 1) // 2
    right = (rows, total, 2 * total, sum(range(100)) * (rows // 100) + sum(range(rows % 100)))
    right += tuple(made.selectExpr(*parity).collect()[0]) if parity else ()
    if found != [right]:
        raise AssertionError(f"the rows sum up to {found}, not {right}")
    return run


def _timed(work: Callable[[], object]) -> Run:
    started = time.perf_counter()
    work()
    return Run(time.perf_counter() - started)


def _staged(spark: SparkSession, work: Callable[[], object]) -> Run:
    group = f"run-{time.monotonic_ns()}"
    spark.sparkContext.setJobGroup(group, "bench")
    return Run(_timed(work).seconds, stages_of(spark.sparkContext, group))


def tidy(spark: SparkSession) -> None:
    """Let Spark's cleaner remove the shuffles of finished runs, so that their removal is not timed with the next."""
    for _ in range(4):
        gc.collect()
        spark._jvm.java.lang.System.gc()  # type: ignore[union-attr]
        time.sleep(0.5)


def heap_mib(spark: SparkSession) -> float:
    """What the JVM holds after a collection."""
    jvm: Any = spark._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    used: int = runtime.totalMemory() - runtime.freeMemory()
    return round(used / 2**20, 1)


def jvm_pid(spark: SparkSession) -> int:
    gateway: Any = SparkContext._gateway
    pid: int = gateway.proc.pid
    return pid


def stages_of(context: SparkContext, group: str) -> tuple[Stage, ...]:
    """Of the jobs of a group, in the order of their numbers; without those skipped since an earlier job ran them."""
    scala: Any = context._jsc.sc()
    scala.listenerBus().waitUntilEmpty()
    tracker = context.statusTracker()
    ids = sorted(
        stage for job in tracker.getJobIdsForGroup(group) for stage in getattr(tracker.getJobInfo(job), "stageIds", ())
    )
    found = [_stage(scala.statusStore().lastStageAttempt(stage)) for stage in ids]
    return tuple(stage for stage in found if stage.tasks)


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
