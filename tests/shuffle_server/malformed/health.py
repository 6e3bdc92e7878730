"""What a process uses, from ``/proc``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Health:
    """Open descriptors, threads, and resident MiB of a process."""

    descriptors: int
    threads: int
    resident: float


def health_of(pid: int) -> Health:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return Health(
        len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"]), int(status["VmRSS"].removesuffix("kB")) / 1024
    )


def wait_for(good: Callable[[], bool], seconds: float) -> bool:
    """Whether `good` came true in time. The other process gives no signal, so this looks again and again."""
    deadline = time.monotonic() + seconds
    while not good():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
