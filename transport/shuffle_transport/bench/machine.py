"""What this machine is and can do at best: said beside every figure, as figures of two machines don't compare."""

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
