"""Compiling the two Java clients, and running each in a JVM of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import IO

from hatch_build import find_spark_jars
from shuffle_plugins.spark.jar import find_jar

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "jvm_transport"
# What Spark gives its JVMs, and Arrow's allocator needs; the same for both.
FLAGS = ("-Xmx1g", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-Dio.netty.tryReflectionSetAccessible=true")
UNCHECKED = ("-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false")
ZERO_COPY = ("-Darrow.flight.enable_zero_copy_write=true", "-Darrow.flight.enable_zero_copy_read=true")
TIMEOUT_S = 300.0


def compile_ours() -> str:
    """The class path of our client: the plugin's jar, Spark's jars, the benchmark's class."""
    return _compile("ours", f"{find_jar()}:{find_spark_jars()}/*")


def compile_core() -> str:
    """The class path of Arrow's client, which Maven resolves."""
    listing = BUILD / "core.classpath"
    listing.parent.mkdir(parents=True, exist_ok=True)
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={listing}"]
    subprocess.run(["mvn", "-B", "-q", "-f", str(HERE / "pom.xml"), *goal], check=True, timeout=600, stdout=sys.stderr)
    return _compile("core", listing.read_text().strip())


def _compile(side: str, classpath: str) -> str:
    target = BUILD / side
    shutil.rmtree(target, ignore_errors=True)
    sources = [str(path) for folder in ("common", side) for path in sorted((HERE / "java" / folder).rglob("*.java"))]
    command = ["javac", "--release", "17", "-d", str(target), "-cp", classpath, *sources]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    return f"{target}:{classpath}"


class Worker:
    """A process that answers a line with a line; ended by closing its input. A context manager."""

    def __init__(self, command: list[str], log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT
            )
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def read(self) -> str:
        """The next line. Raises RuntimeError with the log's end when the process has ended."""
        line = _pipe(self._process.stdout).readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended: {self._log.read_text()[-2000:]}")
        return line.strip()

    def ask(self, line: str) -> str:
        pipe = _pipe(self._process.stdin)
        pipe.write(line + "\n")
        pipe.flush()
        return self.read()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        _pipe(self._process.stdin).close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)
        _pipe(self._process.stdout).close()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
