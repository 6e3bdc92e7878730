"""The plugin's jars, and the versions of Spark they are for: one for Spark 3.5, one for 4.

A later version of Spark 4 is taken too: the jar tests itself there when the application starts (docs/spark.md).
"""

import importlib.metadata
import re
from pathlib import Path

from shuffle_plugins.spark.errors import JarMissing, UnsupportedSpark

JARS = {
    "flight-shuffle-spark_3.5-*.jar": ("3.5",),
    "flight-shuffle-spark_4.3-*.jar": ("4.0", "4.1", "4.2", "4.3"),
}
"""Per jar the versions of Spark that it is tested with."""
SUPPORTED_SPARK = tuple(minor for minors in JARS.values() for minor in minors)
JAR_DIRECTORY = Path(__file__).with_name("jars")


def installed_spark() -> str | None:
    """Version of the installed PySpark, such as ``4.3.0``; None if there is none."""
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return None


def find_jar(spark_version: str | None = None, directory: Path = JAR_DIRECTORY) -> Path:
    """The plugin's jar for a version of Spark; for the installed PySpark by default.

    :raises UnsupportedSpark: there is no jar for that version, or no PySpark.
    :raises JarMissing: the jar was not built, or there are several.
    """
    found = spark_version if spark_version is not None else installed_spark()
    pattern = _jar_for(found)
    jars = sorted(directory.glob(pattern))
    if len(jars) != 1:
        raise JarMissing(directory, pattern, [jar.name for jar in jars])
    return jars[0]


def _jar_for(found: str | None) -> str:
    """The pattern of the jar for a version of Spark: that of its minor version, or of the newest of its major."""
    matched = re.match(r"(\d+)\.(\d+)(\.|$)", found or "")
    if matched is not None:
        major, minor = int(matched[1]), int(matched[2])
        newest = tuple(map(int, SUPPORTED_SPARK[-1].split(".")))
        series = f"{major}.{minor}" if (major, minor) <= newest or major != newest[0] else SUPPORTED_SPARK[-1]
        for pattern, minors in JARS.items():
            if series in minors:
                return pattern
    raise UnsupportedSpark(found, SUPPORTED_SPARK)
