"""Processor time and resident memory of a process, this one or another, from the kernel."""

from __future__ import annotations

import os
import time
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """User and system time so far, all threads, those that ended included; exact, where ``/proc`` counts in 10 ms."""
    return time.clock_gettime((~pid << 3) | 2)  # what clock_getcpuclockid(3) computes on Linux


def resident(pid: int) -> int:
    """Bytes in memory now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def forget_peak(pid: int) -> None:
    """The peak is what is in memory now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak(pid: int) -> int:
    """Most bytes in memory since `forget_peak`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
