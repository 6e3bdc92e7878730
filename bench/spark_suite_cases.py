"""What `bench.spark_suite` times: its cases, and the functions of them that run in the Spark drivers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench import spark_queries, tpch
from bench import spark_shuffle_job as job
from bench.harness.files import once
from bench.spark_shuffle import prepare_input

GROUPS = ("tpch", "tiny", "partitions", "incompressible")
NO_COMPRESSION = {"spark.shuffle.compress": "false"}
RANDOM_BYTES = 1_000  # of each row
TINY_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the report. Both functions are called in a driver with ``arguments``.

    ``check`` returns rows that both sides must agree on, ``timed`` the seconds that its work took. ``sort_conf`` are
    settings that only sort shuffle gets.
    """

    name: str
    group: str
    check: Callable[..., list[tuple[Any, ...]]]
    timed: Callable[..., float]
    arguments: dict[str, Any]
    sort_conf: dict[str, str] = field(default_factory=dict)

    @property
    def heavy(self) -> bool:
        """Whether what a run left behind is removed before the next: else the disk fills, and removal is timed."""
        return self.group in ("partitions", "incompressible")


def prepare(
    directory: Path,
    groups: Sequence[str],
    *,
    scale: float,
    queries: Sequence[int],
    rows: int,
    tiny: int,
    many: Sequence[int],
) -> list[Case]:
    """The cases of these groups; their input is written below ``directory`` if it is not there yet."""
    cases: list[Case] = []
    if "tpch" in groups:
        tables = once(directory / f"tpch-{scale:g}", lambda part: tpch.generate(part, scale))
        texts = tpch.queries()
        where = {"directory": str(tables)}
        cases += [Case(f"q{n}", "tpch", check_sql, timed_sql, where | {"sql": texts[n]}) for n in queries]
    if "tiny" in groups:
        cases.append(Case(f"{tiny} tiny", "tiny", check_tiny, timed_tiny, {"shuffles": tiny}))
    if "partitions" in groups:
        where = {"directory": str(prepare_input(directory, rows))}
        cases += [
            Case(f"into {n}", "partitions", job.checksum, timed_repartition, where | {"partitions": n}) for n in many
        ]
    if "incompressible" in groups:
        count = max(1, rows // 10)
        where = {"directory": str(once(directory / f"random-{count}", lambda part: write_random(part, count)))}
        cases.append(
            Case(
                "random bytes",
                "incompressible",
                check_random,
                timed_repartition,
                where | {"partitions": 64},
                NO_COMPRESSION,
            )
        )
    return cases


def write_random(directory: Path, rows: int) -> None:
    """``rows`` rows of a key k and 1,000 random bytes, as parquet; always the same."""
    directory.mkdir(parents=True)
    for number, ids in enumerate(np.array_split(np.arange(rows), job.FILES)):
        random = np.random.default_rng((job.SEED, number))
        payload = pa.py_buffer(random.bytes(len(ids) * RANDOM_BYTES))
        values = pa.Array.from_buffers(pa.binary(RANDOM_BYTES), len(ids), [None, payload])
        table = pa.table({"k": pa.array(ids * 7_919 % 1_000_003), "b": values})
        pq.write_table(table, directory / f"{number}.parquet", use_dictionary=False, compression="none")


def check_sql(spark: SparkSession, directory: str, sql: str) -> list[tuple[Any, ...]]:
    spark_queries.load(spark, directory, tpch.TABLES)
    return spark_queries.query(spark, sql)


def timed_sql(spark: SparkSession, directory: str, sql: str) -> float:
    spark_queries.load(spark, directory, tpch.TABLES)
    return _timed(lambda: spark_queries.query(spark, sql))


def check_tiny(spark: SparkSession, shuffles: int) -> list[tuple[Any, ...]]:
    return [(row.id,) for row in _tiny(spark)]


def timed_tiny(spark: SparkSession, shuffles: int) -> float:
    """One job after the other, each with one shuffle of next to nothing: what a shuffle costs before its first byte."""
    return _timed(lambda: [_tiny(spark) for _ in range(shuffles)])


def _tiny(spark: SparkSession) -> list[Any]:
    return spark.range(0, TINY_ROWS, 1, 2).repartition(4, "id").collect()


def check_random(spark: SparkSession, directory: str, partitions: int) -> list[tuple[Any, ...]]:
    arrived = spark.read.parquet(directory).repartition(partitions, "k")
    sums = arrived.selectExpr("spark_partition_id() as p", "xxhash64(k, b) as h").groupBy("p")
    return [tuple(row) for row in sums.agg({"h": "bit_xor", "*": "count"}).orderBy("p").collect()]


def timed_repartition(spark: SparkSession, directory: str, partitions: int) -> float:
    return job.run(spark, directory, partitions).seconds


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
