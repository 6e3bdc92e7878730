"""The plugin's jar, and the versions of Spark it is for: it was compiled against each of them and refuses others."""

import importlib.metadata
from pathlib import Path

from shuffle_plugins.spark.errors import JarMissing, UnsupportedSpark

SUPPORTED_SPARK = ("4.0", "4.1", "4.2", "4.3")
JAR_DIRECTORY = Path(__file__).with_name("jars")
JAR_PATTERN = "flight-shuffle-spark_4.3-*.jar"


def installed_spark() -> str | None:
    """Version of the installed PySpark, such as ``4.3.0``; None if there is none."""
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return None


def find_jar(spark_version: str | None = None, directory: Path = JAR_DIRECTORY) -> Path:
    """The plugin's jar for a version of Spark; for the installed PySpark by default.

    :raises UnsupportedSpark: the jar is not for that version, or there is no PySpark.
    :raises JarMissing: the jar was not built, or there are several.
    """
    found = spark_version if spark_version is not None else installed_spark()
    series = None if found is None else ".".join(found.split(".")[:2])
    if series not in SUPPORTED_SPARK:
        raise UnsupportedSpark(found, SUPPORTED_SPARK)
    jars = sorted(directory.glob(JAR_PATTERN))
    if len(jars) != 1:
        raise JarMissing(directory, JAR_PATTERN, [jar.name for jar in jars])
    return jars[0]
