"""What Spark's `xxhash64` makes of the rows of a file; runs in a Spark driver."""

from __future__ import annotations

from pyspark.sql import SparkSession


def hashes(spark: SparkSession, path: str) -> dict[str, list[int]]:
    """The hashes of each column, in the file's order, and under `all` those of all columns."""
    frame = spark.read.parquet(path).coalesce(1)
    names = frame.columns
    rows = frame.selectExpr(*(f"xxhash64(`{n}`) as `{n}`" for n in names), "xxhash64(*) as all").collect()
    return {name: [row[name] for row in rows] for name in [*names, "all"]}
