"""The demo's handle on one side: starts its process, asks it to run a query, and ends it."""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60.0


class SideFailed(Exception):
    """A side's process could not start, died or hung; the message has its last words."""


class Side:
    """A process with a Spark session. A context manager; ``log`` takes its standard error.

    ``plan`` waits until it is up, ``run`` raises SideFailed if it dies or exceeds the time limit.
    """

    def __init__(
        self, name: str, scratch: Path, conf: Mapping[str, str], sections: Sequence[Mapping[str, str]], timeout: float
    ) -> None:
        self.name, self.results = name, scratch / f"{name}-results"
        self._log, self._timeout, self._answered = scratch / f"{name}.log", timeout, b""
        with self._log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tools.demo.side"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONWARNINGS": "ignore"},
                start_new_session=True,  # a group of its own: Ctrl-C goes to the demo, which ends it with its JVM
            )
        self._send({"app": f"demo-{name}", "conf": conf, "sections": sections, "results": str(self.results)})

    def plan(self) -> list[dict[str, Any]]:
        """The queries of all sections: section, name, ordered_by. Raises SideFailed, also for unreadable input."""
        reply = self._receive(START_TIMEOUT_S)
        if "error" in reply:
            raise SideFailed(f"{self.name}: {reply['error']}")
        queries: list[dict[str, Any]] = reply["queries"]
        return queries

    def run(self, number: int) -> dict[str, Any]:
        """``seconds``, or ``error`` if the query failed; the result is in ``results/<number>``."""
        self._send({"run": number})
        return self._receive(self._timeout)

    def stop(self) -> None:
        """Ends the session in order; idempotent. A process that still runs after a minute is killed."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def kill(self) -> None:
        """Ends the process and its JVM at once."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_TIMEOUT_S)

    def __enter__(self) -> "Side":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        self.stop()

    def _send(self, message: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise SideFailed(f"{self.name}: its process ended.{self._last_words()}") from None

    def _receive(self, timeout: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._answered:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise SideFailed(f"{self.name}: no answer for {timeout:g} s.{self._last_words()}")
                piece = os.read(self._process.stdout.fileno(), 1 << 16)
                if not piece:
                    raise SideFailed(f"{self.name}: its process ended.{self._last_words()}")
                self._answered += piece
        line, _, self._answered = self._answered.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _last_words(self) -> str:
        said = self._log.read_text(errors="replace").splitlines()[-20:]
        return "\n" + "\n".join(said) if said else ""
