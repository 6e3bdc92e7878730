"""The versions of Spark whose suites can be run, and with which libraries their test jars go."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Line:
    """A line of Spark: its Scala, the properties of pom.xml that differ from those of the newest, and what suites of
    suites.txt are called there."""

    scala: str
    properties: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)


LINES = {
    "4.2": Line("2.13"),
    "4.1": Line("2.13", ("-Dhadoop.version=3.4.2", "-Djackson.version=2.20.0", "-Dscalatestplus.mockito=mockito-5-12")),
    "4.0": Line("2.13", ("-Dhadoop.version=3.4.1", "-Djackson.version=2.18.2", "-Dscalatestplus.mockito=mockito-5-12")),
    "3.5": Line(
        "2.12",
        (
            "-Dscala.binary=2.12",
            "-Dscalatest.version=3.2.16",
            "-Dscalatestplus.version=3.2.16.0",
            "-Dscalatestplus.scalacheck=scalacheck-1-17",
            "-Dscalatestplus.mockito=mockito-4-11",
            "-Dscalatestplus.selenium=selenium-4-9",
            "-Dselenium.version=4.9.1",
            "-Dscalacheck.version=1.17.0",
            "-Dmockito.version=4.11.0",
            "-Dhadoop.version=3.3.4",
            "-Dderby.version=10.14.2.0",
            "-Djackson.version=2.15.2",
        ),
        {"ShuffleNettyAutoSuite": "ShuffleNettySuite"},
    ),
}


def line_of(version: str) -> Line:
    """Raises ValueError for a Spark whose test jars are not known to work here."""
    minor = ".".join(version.split(".")[:2])
    if minor not in LINES:
        raise ValueError(f"Spark {version}: the suites run with Spark {', '.join(LINES)}")
    return LINES[minor]
