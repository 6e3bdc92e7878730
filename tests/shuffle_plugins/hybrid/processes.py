"""Starts tasks in processes of their own, listens to what they say, and kills them."""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from shuffle_api.testing import oracle
from tests.shuffle_plugins.hybrid.task import Task

ROOT = Path(__file__).parents[3]
ROOTS = (".", "shuffle_api", "transport", "plugins", "remote_service")
WAIT = 240.0


class TaskProcess:
    """A context manager: a process that still runs at its end is killed."""

    def __init__(self, task: Task) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / root) for root in ROOTS)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.shuffle_plugins.hybrid.task"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(pickle.dumps(task))
        self._process.stdin.close()
        self.records: list[oracle.Record] = []
        self._words: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def wait_for(self, word: str) -> list[str]:
        """Until it says that, or ends; what it said from there on."""
        deadline = time.monotonic() + WAIT
        while True:
            said = self._words.get(timeout=max(0.1, deadline - time.monotonic())).split()
            if said[0] == word:
                return said
            assert said[0] == "at", f"instead of {word}: {said}"

    def wait_until_at(self, number: int) -> None:
        """Until it has come to a record."""
        while int(self.wait_for("at")[1]) < number:
            pass

    def kill(self) -> None:
        """As `kill -9`."""
        self._process.kill()
        self._process.wait(WAIT)

    def end(self) -> None:
        """Wait for its own end."""
        assert self._process.wait(WAIT) == 0
        self._listener.join(WAIT)

    def _listen(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        for line in stdout:
            self._words.put(line.decode())
            if line.startswith(b"done"):
                self.records = pickle.load(stdout)
        self._words.put("ended")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        self._listener.join(WAIT)
        if self._process.stdout is not None:
            self._process.stdout.close()
