"""SQL over tables in parquet files; these functions run in a Spark driver (`bench.harness.spark_driver`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def load(spark: SparkSession, directory: str, tables: Sequence[str]) -> None:
    """Make ``<directory>/<table>.parquet`` the view ``<table>``, for each."""
    for table in tables:
        spark.read.parquet(str(Path(directory) / f"{table}.parquet")).createOrReplaceTempView(table)


def query(spark: SparkSession, sql: str) -> list[tuple[Any, ...]]:
    """The rows of the answer."""
    return [tuple(row) for row in spark.sql(sql).collect()]
