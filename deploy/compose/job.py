"""A job on Spark standalone whose shuffles go through the three workers; without one it fails instead of falling back.

SPARK_MASTER and FLIGHT_SHUFFLE_SERVER name other places than those of compose.yaml.
"""

import os
import socket

from pyspark.sql import SparkSession

from flight_shuffle import spark_conf

ROWS, KEYS = 5_000_000, 1000

settings = spark_conf(os.environ.get("FLIGHT_SHUFFLE_SERVER", "master:9110"), fallback="never")
spark = (
    SparkSession.builder.appName("try-out")
    .master(os.environ.get("SPARK_MASTER", "spark://spark-master:7077"))
    .config("spark.driver.host", os.environ.get("DRIVER_HOST", socket.gethostname()))
    .config(map=settings)
    .getOrCreate()
)
numbers = spark.range(ROWS).selectExpr(f"id % {KEYS} as key", "id as value")
rows = numbers.groupBy("key").sum("value").orderBy("key").collect()
spark.stop()
if len(rows) != KEYS or sum(row[1] for row in rows) != ROWS * (ROWS - 1) // 2:
    raise SystemExit(f"the sums are wrong: {len(rows)} rows")
print(f"{ROWS} rows summed into {KEYS} through Flight Shuffle")
