"""The plugin's jars, and the versions of Spark they are for: one for Spark 3.5, one for 4.

A later version of Spark 4 is taken too: the jar tests itself there when the application starts (docs/spark.md).
"""

import importlib.metadata
import re
from collections.abc import Iterable
from pathlib import Path

from shuffle_api.errors import InvalidArgument

JARS = {
    "flight-shuffle-spark_3.5-*.jar": ("3.5",),
    "flight-shuffle-spark_4.3-*.jar": ("4.0", "4.1", "4.2", "4.3"),
}
"""Per jar the versions of Spark that it is tested with."""
SUPPORTED_SPARK = tuple(minor for minors in JARS.values() for minor in minors)
JAR_DIRECTORY = Path(__file__).with_name("jars")


class UnsupportedSpark(InvalidArgument):
    """The Spark that was `found` is none of those the plugin's jar is for; `found` is None if there is no Spark."""

    def __init__(self, found: str | None, supported: Iterable[str]) -> None:
        self.found = found
        self.supported = tuple(supported)
        series = ", ".join(self.supported)
        super().__init__(
            "no PySpark is installed here" if found is None else f"the Spark plugin does not support Spark {found}",
            remedy=f"use one of Spark {series}: pip install 'pyspark~={self.supported[-1]}.0'"
            + ("; or name the version of your Spark (spark_version=)" if found is None else ""),
        )


class JarMissing(InvalidArgument):
    """`directory` does not hold exactly one jar of the plugin that matches `pattern`; `found` lists those it holds."""

    def __init__(self, directory: Path, pattern: str, found: Iterable[str] = ()) -> None:
        self.directory = directory
        self.pattern = pattern
        self.found = tuple(found)
        said = f"several jars ({', '.join(self.found)})" if self.found else f"no {pattern}"
        super().__init__(
            f"{said} in {directory}",
            remedy="build the one that belongs to this version (needs Maven and a JDK): pip install -e . "
            "in a checkout, or install the wheel, which has it",
        )


class SparkAlreadyStarted(InvalidArgument):
    """Spark's JVM runs in this process already, without the plugin; jars are only looked at when it starts."""

    default_remedy = (
        "make the configuration before the first SparkSession of the process (stopping a session keeps its JVM), "
        "or start Python anew"
    )


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
