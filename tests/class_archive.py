"""Where Spark's classes are kept, loaded and verified, for the JVMs of tests to map (class data sharing, JEP 350).

To find and verify them is a fifth of what such a JVM does in its half minute. `tests.spark.archive_classes` writes the
file, `tests/conftest.py` names it to all JVMs. They see for themselves whether the same Java wrote it with the same
class path, and do without if not.
"""

from importlib.metadata import version
from pathlib import Path

ARCHIVE = Path(__file__).resolve().parents[1] / "build" / f"spark-classes-{version('pyspark')}.jsa"

WRITE = "-XX:ArchiveClassesAtExit={archive}"

# A JVM would warn of an archive that is not its own, on standard output.
USE = "-XX:SharedArchiveFile={archive} -Xlog:disable -Xlog:all=error:stderr"
