"""What tests do to processes that are not their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Inside, the process is there and answers nothing."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def run_apart(program: str, *without: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, which must succeed; what it has written.

    :param without: beginnings of names that its environment does not have, but for those in `variables`.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(without)}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), **variables}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done
