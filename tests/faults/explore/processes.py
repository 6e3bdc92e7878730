"""The processes of a schedule. All are forked from one that has loaded everything, so that a start takes little.

None outlives the explorer. SIGUSR1 has each write the stacks of its threads to its log.
"""

from __future__ import annotations

import ctypes
import faulthandler
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["tests.faults.explore.actor", "tests.faults.explore.serving", "tests.faults.explore.streaming_task"]
)

END_S = 10.0
PR_SET_PDEATHSIG = 1


def become(log: Path, output: Path | None = None) -> None:
    """What a new process does first: its output goes to files, and it ends with the explorer."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number, path in ((1, output or log), (2, log)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
    faulthandler.enable(sys.stderr, all_threads=True)
    faulthandler.register(signal.SIGUSR1, sys.stderr, all_threads=True)


class Child:
    """A process that can be killed, frozen and looked into. `alive` is false once it has ended."""

    def __init__(self, target: Any, arguments: Sequence[Any], log: Path) -> None:
        self.log = log
        self._process: ForkServerProcess = CONTEXT.Process(target=target, args=tuple(arguments), daemon=True)
        self._process.start()
        self.frozen = False

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    @property
    def status(self) -> int | None:
        return self._process.exitcode

    def freeze(self) -> None:
        """SIGSTOP."""
        self.frozen = True
        _signal(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        self.frozen = False
        _signal(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """`kill -9`, and wait for its end."""
        if self.alive:
            _signal(self.pid, signal.SIGKILL)
        self._process.join(END_S)

    def terminate(self, seconds: float) -> bool:
        """SIGTERM; whether it ended within that time."""
        _signal(self.pid, signal.SIGTERM)
        self._process.join(seconds)
        return not self.alive

    def stacks(self) -> str:
        """What its threads are doing, as its log then says."""
        if not self.alive or self.frozen:
            return f"{self.log.name}: {'stopped' if self.frozen else 'not running'}"
        before = self.log.stat().st_size
        _signal(self.pid, signal.SIGUSR1)
        time.sleep(0.3)
        return f"{self.log.name}:\n{self.log.read_bytes()[before:].decode(errors='replace')}"


class Actor(Child):
    """A process that carries out commands from a pipe, one at a time."""

    def __init__(self, target: Any, log: Path) -> None:
        self.pipe, theirs = CONTEXT.Pipe()
        super().__init__(target, (theirs, log), log)
        theirs.close()

    def send(self, message: object) -> bool:
        """False if it is gone."""
        try:
            self.pipe.send(message)
        except OSError:
            return False
        return True

    def kill(self) -> None:
        super().kill()
        self.pipe.close()


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it ended by itself


__all__ = ["CONTEXT", "Actor", "Child", "Connection", "become"]
