"""What may be wrong with the Spark at hand. None of these ever travels over the wire."""

from collections.abc import Iterable
from pathlib import Path

from shuffle_api.errors import InvalidArgument


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
