"""Processor time of running processes, from ``/proc``."""

import os
import re
from collections import defaultdict
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, all its threads, those that ended included."""
    return _ticks(Path(f"/proc/{pid}/stat")) / TICKS


def cpu_by_thread_name(pid: int) -> dict[str, float]:
    """Seconds so far of the threads that live, summed by name without its numbers (names are cut at 15 characters)."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
            seconds[re.sub(r"[-#_ ]*\d+$", "", name)] += _ticks(task / "stat") / TICKS
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
    return seconds


def figure(pid: int, file: str, name: str) -> int:
    """A line of ``/proc/PID/FILE``, in its own unit."""
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def peak_mib(pid: int) -> int:
    """The most memory that a process has had."""
    return figure(pid, "status", "VmHWM") >> 10


def since(before: dict[str, float], pid: int) -> dict[str, float]:
    """What the threads have used since `cpu_by_thread_name` returned ``before``."""
    return {name: spent - before.get(name, 0.0) for name, spent in cpu_by_thread_name(pid).items()}


def _ticks(stat: Path) -> int:
    fields = stat.read_text().rpartition(")")[2].split()  # the name before the bracket may contain anything
    return int(fields[11]) + int(fields[12])
