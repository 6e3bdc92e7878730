"""Stages that Spark treats in a way of their own. What needs its tasks' context is a function of the module."""

import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import RDD, BarrierTaskContext, TaskContext
from pyspark.sql import DataFrame, Row, SparkSession

from tests.spark import jobs

ROWS, MAPS, PARTITIONS = 20_000, 6, 4
DEADLINE_S = 300.0
HELD: dict[str, "RDD[Row]"] = {}


def barrier(spark: SparkSession, flag: str) -> list[Any]:
    """A barrier stage between two shuffles, whose tasks wait for each other. One fails, if ``flag`` is not there."""
    pairs = spark.sparkContext.parallelize(range(ROWS), MAPS).map(lambda i: (i % 97, i)).partitionBy(PARTITIONS)
    together = pairs.barrier().mapPartitions(lambda part: _together(part, Path(flag)))
    return [sorted(part) for part in together.partitionBy(3).glom().collect()]


def _together(pairs: Iterable[tuple[int, int]], flag: Path) -> Iterator[tuple[int, Any]]:
    """One fails before the others can end: Spark would keep the output of one that ends at that moment, start the stage
    again without it, and the rest would wait for it for ever (docs/spark.md, Troubleshooting)."""
    context = BarrierTaskContext.get()
    total = sum(value for _, value in pairs)
    if context.partitionId() == 1 and not flag.exists():
        flag.touch()
        raise RuntimeError("one task of the barrier stage fails on purpose")
    totals = context.allGather(str(total))
    yield context.partitionId(), (total, sorted(totals))


def write(spark: SparkSession, name: str) -> None:
    """Run the map stage of a SQL query, of `MAPS` maps, and keep it."""
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    HELD[name] = _rows(spark).repartition(PARTITIONS, "id").rdd
    HELD[name].count()


def _rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, MAPS).selectExpr("id", "hash(id) as h")


def read(spark: SparkSession, name: str) -> list[tuple[int, int]]:
    """Its rows, read from the shuffle again."""
    return sorted(tuple(row) for row in HELD[name].collect())


def expected(spark: SparkSession) -> list[tuple[int, int]]:
    """What `read` and `indeterminate` must return: no shuffle was near it."""
    return sorted(tuple(row) for row in _rows(spark).collect())


def shuffled(spark: SparkSession, adaptive: bool) -> list[tuple[int, int]]:
    """The rows, through one shuffle; as `expected`."""
    spark.conf.set("spark.sql.adaptive.enabled", str(adaptive).lower())
    return sorted(tuple(row) for row in _rows(spark).repartition(PARTITIONS, "id").collect())


def row_checksums(spark: SparkSession) -> list[Any]:
    """What the dependency of a SQL exchange, which every task of both its stages gets, holds for each partition."""
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    rows: Any = _rows(spark).repartition(PARTITIONS, "id")
    dependency = rows._jdf.queryExecution().toRdd().dependencies().head()
    while dependency.getClass().getSimpleName() != "ShuffleDependency":
        dependency = dependency.rdd().dependencies().head()
    return [each and each.toString() for each in dependency.rowBasedChecksums()]


def indeterminate(spark: SparkSession, flags: str) -> list[tuple[int, int]]:
    """Three shuffles; the rows of the second go round robin in an order that nothing decides.

    So a map of it that runs again sends most rows elsewhere, and rows read from its first output are void. The task
    for its partition 1 makes the file ``flags/reading`` and waits for ``flags/lost``.
    """
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.conf.set("spark.sql.execution.sortBeforeRepartition", "false")
    given = _rows(spark).repartition(MAPS, "h").mapInArrow(_in_any_order, "id long, h int").repartition(PARTITIONS)
    held_up = given.mapInArrow(_HeldUp(flags), "id long, h int")
    return sorted(tuple(row) for row in held_up.repartition(3, "id").collect())


def _in_any_order(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.take(pa.array(random.sample(range(batch.num_rows), batch.num_rows)))


class _HeldUp:
    def __init__(self, flags: str) -> None:
        self._flags = Path(flags)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1:
            (self._flags / "reading").touch()
            deadline = time.monotonic() + DEADLINE_S
            while not (self._flags / "lost").exists():
                assert time.monotonic() < deadline
                time.sleep(0.05)


def speculated(spark: SparkSession, flag: str) -> tuple[int, str]:
    """The first attempt of one map writes all its rows, and then does not end. Returns the rows' count and a digest.

    ``flag`` is a file that this attempt makes when it has written.
    """
    rows = spark.range(0, 64, 1, 4).mapInArrow(_Slow(flag), "id long, payload binary").repartition(3, "id")
    return digest_of(rows)


def digest_of(rows: DataFrame) -> tuple[int, str]:
    found = sorted((row.id, bytes(row.payload)) for row in rows.collect())
    return len(found), jobs.digest(payload for _, payload in found)


def payload(number: int) -> bytes:
    """A quarter of a MiB that does not compress: the 16 rows of a map fill its buffers several times."""
    return random.Random(number).randbytes(1 << 18)


class _Slow:
    def __init__(self, flag: str) -> None:
        self._flag = flag

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield pa.RecordBatch.from_pydict({"id": [number], "payload": [payload(number)]})
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            Path(self._flag).touch()
            time.sleep(300)  # Spark ends it long before
