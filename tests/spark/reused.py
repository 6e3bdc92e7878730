"""A DataFrame that is collected again after Spark has removed the files of its shuffles."""

from pyspark.sql import SparkSession

ROWS, MAPS = 10_000, 3
CLEANED = {
    "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}


def collect(spark: SparkSession, times: int, adaptive: bool) -> list[list[tuple[int, int]]]:
    """What the same DataFrame gives each time."""
    spark.conf.set("spark.sql.adaptive.enabled", str(adaptive).lower())
    frame = spark.range(0, ROWS, 1, MAPS).selectExpr("id % 7 as k", "id").groupBy("k").sum("id")
    return [sorted(tuple(row) for row in frame.collect()) for _ in range(times)]


def expected() -> list[tuple[int, int]]:
    """What each must be."""
    return [(k, sum(range(k, ROWS, 7))) for k in range(7)]
