"""One suite in a JVM of its own, with sort shuffle or through a server."""

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shuffle_plugins.spark import find_jar
from tests.spark_suites.lines import line_of
from tests.spark_suites.material import HERE, Material

OPENED = [
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
]
JAVA = (
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "--add-modules=jdk.incubator.vector",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-Xmx3g",
    "-Xss64m",
    "-XX:ReservedCodeCacheSize=512m",
    "-ea",
    "-XX:ActiveProcessorCount=2",
)
TESTING = {
    "spark.testing": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.unsafe.exceptionOnMemoryLeak": "true",
    "spark.memory.debugFill": "true",
    "derby.system.durability": "test",
    "file.encoding": "UTF-8",
}


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs suites of ``material``'s Spark; their output is in ``work/out/VERSION/MODE/SUITE.*``.

    ``settings`` are Spark's, by mode; sort shuffle has none. Suites work in ``scratch``, which is of this run alone.
    """

    work: Path
    scratch: Path
    material: Material
    settings: Mapping[str, Mapping[str, str]]
    limit: float

    def tsv(self, suite: str, mode: str) -> Path:
        return self.work / "out" / self.material.version / mode / f"{suite}.tsv"

    def run(self, suite: str, mode: str, tests: Sequence[str] = (), containing: Sequence[str] = ()) -> float:
        """All tests of ``suite``, or those named, or those whose names contain one of ``containing``; seconds."""
        tsv = self.tsv(suite, mode)
        tsv.parent.mkdir(parents=True, exist_ok=True)
        for old in tsv.parent.glob(f"{suite}.*"):
            old.unlink()
        scratch = self.scratch / f"{mode}-suite"
        shutil.rmtree(scratch, ignore_errors=True)
        (scratch / "target/tmp").mkdir(parents=True)
        only = [word for test in tests for word in ("-t", test)] + [
            word for text in containing for word in ("-z", text)
        ]
        began = time.monotonic()
        with tsv.with_suffix(".out").open("wb") as output:
            try:
                subprocess.run(
                    [
                        "java",
                        *JAVA,
                        *self._properties(suite, mode, scratch),
                        "-cp",
                        self.material.class_path(self.jar),
                        "org.scalatest.tools.Runner",
                        "-s",
                        suite,
                        *only,
                        "-oWDF",
                        "-C",
                        "TsvReporter",
                    ],
                    stdout=output,
                    stderr=output,
                    stdin=subprocess.DEVNULL,
                    cwd=scratch,
                    env=self._environment(),
                    timeout=self.limit,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                pass  # what was running shows as UNFINISHED
        return time.monotonic() - began

    @property
    def jar(self) -> Path:
        return find_jar(self.material.version)

    def _properties(self, suite: str, mode: str, scratch: Path) -> list[str]:
        log = self.tsv(suite, mode).with_suffix(".log")
        given = TESTING | {
            "java.io.tmpdir": str(scratch / "target/tmp"),
            "spark.test.home": str(self.material.home),
            "suites.tsv": str(self.tsv(suite, mode)),
            "suites.log": str(log),
            "log4j2.configurationFile": f"file:{HERE}/log4j2.properties",
        }
        agent = []
        if mode in self.settings:
            given |= self.settings[mode]
            agent = [f"-javaagent:{self.material.agent}"]
        return [*(f"-D{name}={value}" for name, value in given.items()), *agent]

    def _environment(self) -> dict[str, str]:
        core = self.material.home / "core/src/test/resources"
        return os.environ | {
            "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_TESTING": "1",
            "SPARK_SCALA_VERSION": line_of(self.material.version).scala,
            "SPARK_HOME": str(self.material.home),
            "SPARK_DIST_CLASSPATH": f"{self.jar}:{core}",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "localhost",
            "TZ": "America/Los_Angeles",
            "LC_ALL": "C.UTF-8",
        }
