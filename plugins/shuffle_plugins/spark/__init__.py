"""The way into Spark: the configuration that makes a PySpark job shuffle through a Flight Shuffle server.

    from pyspark.sql import SparkSession
    from flight_shuffle import spark_conf

    spark = SparkSession.builder.config(map=spark_conf("shuffle.example.org:9110")).getOrCreate()

The job itself needs no change. The plugin is a jar that travels in this package.
"""

from shuffle_plugins.spark.conf import FALLBACKS, conf_lines, spark_conf
from shuffle_plugins.spark.jar import SUPPORTED_SPARK, JarMissing, SparkAlreadyStarted, UnsupportedSpark, find_jar

__all__ = [
    "spark_conf",
    "conf_lines",
    "find_jar",
    "FALLBACKS",
    "SUPPORTED_SPARK",
    "JarMissing",
    "SparkAlreadyStarted",
    "UnsupportedSpark",
]
