"""This machine, its facts and its limits, which stand beside every figure; processor time and memory of a process."""

from __future__ import annotations

import os
import platform
import statistics
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

GIB = 1 << 30
MEMCPY_BYTES = 64 << 20
MEMCPY_ROUNDS = 15
PAGE = os.sysconf("SC_PAGE_SIZE")


def facts() -> dict[str, str | int | float]:
    """Processor, memory, versions; `load_before`: processes that wanted to run, averaged over the last minute."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count() or 0,
        "memory_bytes": int(_field("/proc/meminfo", "MemTotal").split()[0]) << 10,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "pyarrow": version("pyarrow"),
        "flight_shuffle": version("flight-shuffle"),
        "load_before": round(os.getloadavg()[0], 2),
    }


def memcpy_gib_s() -> float:
    """Copying warm memory, median."""
    source, target = (np.ones(MEMCPY_BYTES, np.uint8) for _ in range(2))
    seconds = []
    for _ in range(MEMCPY_ROUNDS):
        started = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - started)
    return round(MEMCPY_BYTES / statistics.median(seconds) / GIB, 2)


def _field(path: str, name: str) -> str:
    lines = Path(path).read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "unknown")


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
