"""How hypothesis runs here: no verdict depends on how busy the machine is, nor, in CI, on which examples are drawn.

Elsewhere than in CI the examples are others each time, so that new ones are found. And how JVMs do: those of tests live
for seconds, in which the second compiler and a parallel collector take two fifths of all processor time.
"""

import os

from hypothesis import HealthCheck, settings

from tests.class_archive import ARCHIVE, USE

IN_CI = bool(os.environ.get("CI"))

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
archived = f" {USE.format(archive=ARCHIVE)}" if ARCHIVE.exists() else ""
# The variable is for `java` itself, so it reaches executors and workers that Spark starts, too.
os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA_OPTIONS + archived)

settings.register_profile(
    "flight_shuffle", derandomize=IN_CI, suppress_health_check=[HealthCheck.too_slow], deadline=None
)
settings.load_profile("flight_shuffle")
