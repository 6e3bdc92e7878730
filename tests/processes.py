"""What tests do to processes that are not their own, and see of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Inside, the process is there and answers nothing: none of its threads runs."""
    os.kill(pid, signal.SIGSTOP)
    try:
        await_stopped(pid)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def await_stopped(pid: int, within: float = 60.0) -> None:
    """Return when all threads of a process that was sent SIGSTOP have stopped: they do one after the other."""
    give_up = time.monotonic() + within
    while not all(_is_stopped(thread) for thread in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < give_up, f"process {pid} does not stop"
        time.sleep(0.01)


def _is_stopped(thread: Path) -> bool:
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:  # it has ended
        return True


def run_apart(program: str, *without: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, which must succeed; returns its output.

    :param without: beginnings of names that its environment does not have, but for those in `variables`.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(without)}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), **variables}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done


def event_engine_switches(pid: int) -> int:
    """How often the threads of gRPC's event engine in a process have waited: in each call, when they take part."""
    count = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it may end just now
            if (thread / "comm").read_text().startswith("event_engine"):
                status = (thread / "status").read_text().splitlines()
                count += sum(int(line.split()[1]) for line in status if line.startswith("voluntary"))
    return count


def processes_that_mention(directory: Path) -> list[str]:
    """The command lines, but for this process's, in which a directory occurs."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # it ended meanwhile
                continue
            if str(directory) in command and int(entry.name) != os.getpid():
                found.append(command)
    return found
