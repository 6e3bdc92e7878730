"""A PySpark driver in a process of its own that runs functions for us: for jobs with different settings side by side.

PySpark keeps one JVM per process, and that JVM reads its class path and jars once. So every configuration that is
tested or measured gets a process, in which `bench.harness.spark_child` waits for calls.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Self

from bench.harness.jvm_threads import dump_tasks

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = (ROOT, *(ROOT / name for name in ("shuffle_api", "transport", "plugins", "remote_service")))

CALL_TIMEOUT_S = 1000.0
STOP_TIMEOUT_S = 240.0


class JobFailed(Exception):
    """A call raised in the driver; the message is its traceback, with Java's inside. Also: the driver process died."""


@dataclass(frozen=True, slots=True)
class Call:
    """What goes to the child: a function of an importable module, and its keyword arguments."""

    module: str
    function: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.module}.{self.function}"


class SparkDriver:
    """One driver process. The first call starts Spark; standard output and error of everything go to ``log``.

    ``pyspark`` is a directory with another PySpark than the installed one. `usable` says whether the process still
    answers.
    """

    def __init__(self, conf: Mapping[str, str], log: Path, pyspark: Path | None = None) -> None:
        self.log = log
        self._conf = dict(conf)
        self.usable = True
        self._due: deque[str] = deque()  # what has not been answered, by name
        self._hung = ""
        self._pipe, theirs = Pipe()
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.harness.spark_child", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=ROOT,
                env=os.environ | _environment(pyspark),
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # so that its whole process group can be ended
            )
        theirs.close()
        self._send(self._conf)

    def call(self, function: Callable[..., Any], *, timeout: float = CALL_TIMEOUT_S, **arguments: Any) -> Any:
        """Run ``function(spark, **arguments)`` there; its result.

        :raises JobFailed: it raised, or the process ended.
        :raises TimeoutError: no answer within ``timeout`` seconds; the driver is then of no more use.
        """
        self.begin(function, **arguments)
        return self.result(timeout)

    def begin(self, function: Callable[..., Any], **arguments: Any) -> None:
        """Start a call without waiting. One call at a time: fetch the `result` before the next.

        :raises TimeoutError: an earlier call did not return.
        """
        self._send(Call(function.__module__, function.__qualname__, arguments))

    def result(self, timeout: float = CALL_TIMEOUT_S) -> Any:
        """The result of the call under way; raises as `call` does."""
        deadline = time.monotonic() + timeout
        try:
            while self._due:  # those before the last belong to calls whose result nobody fetched
                if not self._pipe.poll(max(0.0, deadline - time.monotonic())):
                    self.usable, self._hung = False, self._due[0]
                    doing = dump_tasks(self._process.pid, self.log)
                    raise TimeoutError(f"{self._hung}: no answer within {timeout:.0f} s; see {self.log}\n{doing}")
                succeeded, result = self._pipe.recv()
                self._due.popleft()
        except (EOFError, ConnectionError):
            raise self._ended() from None
        if not succeeded:
            raise JobFailed(result)
        return result

    def answered(self, seconds: float) -> bool:
        """Whether the oldest `result` is there within that time."""
        return self._pipe.poll(seconds)

    def freeze(self) -> None:
        """SIGSTOP for the process and its JVM."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def renew(self, changes: Mapping[str, str]) -> None:
        """End the session; the next call starts one with the settings of `configure` and ``changes`` to them.

        The JVM stays, so its memory and the jars can't change.
        """
        self._send(self._conf | dict(changes))
        self.result(STOP_TIMEOUT_S)

    def configure(self, conf: Mapping[str, str]) -> None:
        """End the session; the next call starts one with ``conf`` instead of all that was set before."""
        self._conf = dict(conf)
        self.renew({})

    def close(self) -> None:
        """Stop Spark and end the process, by force if it takes too long; idempotent."""
        self.usable = False
        if self._pipe.closed:
            return
        try:
            if not self._hung:
                self._pipe.send(None)
                self._process.wait(STOP_TIMEOUT_S)
        except (ConnectionError, subprocess.TimeoutExpired):
            pass  # whatever is left of it is ended below
        finally:
            self._pipe.close()
            _kill_group(self._process)

    def _send(self, message: Call | dict[str, str]) -> None:
        if self._hung:
            raise TimeoutError(f"{self._hung} did not answer before; see {self.log}")
        try:
            self._pipe.send(message)
            self._due.append(str(message) if isinstance(message, Call) else "the end of the session")
        except ConnectionError:
            raise self._ended() from None

    def _ended(self) -> JobFailed:
        self.usable = False
        return JobFailed(f"the Spark driver ended: {self.log.read_text(errors='replace')[-4000:]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all of it ended by itself
    process.wait(STOP_TIMEOUT_S)


def _environment(pyspark: Path | None) -> dict[str, str]:
    given = os.environ.get("PYTHONPATH")  # scripts/spark-versions runs the tests with another PySpark so
    roots = [path for path in (pyspark, given) if path] + list(SOURCE_ROOTS)
    return {
        "PYTHONPATH": os.pathsep.join(map(str, roots)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
