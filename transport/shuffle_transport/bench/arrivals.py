"""When blocks came, against when they were meant to be sent.

The first eight bytes of each block are the time on its schedule. Both ends read the same clock (CLOCK_MONOTONIC, which
is the machine's, not the process's), so the difference is the time one way, and a sender that falls behind its
schedule shows up in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from time import perf_counter_ns

import numpy as np

from shuffle_api.buffer import Buffer

POINTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99_9": 99.9, "max": 100.0}


class Arrivals:
    """Collects the delays of one stream's blocks of `block` bytes each."""

    def __init__(self, block: int) -> None:
        self._words = block // 8
        self._delays: list[np.ndarray] = []

    def add(self, payload: Buffer) -> None:
        """Blocks back to back, which came now."""
        now = perf_counter_ns()
        self._delays.append(now - np.frombuffer(memoryview(payload), "<i8")[:: self._words])

    def report(self) -> bytes:
        """JSON of `quantiles`, with the number of `messages` and of `blocks`."""
        delays = np.concatenate(self._delays) if self._delays else np.zeros(1, np.int64)
        counts = {"messages": len(self._delays), "blocks": sum(map(len, self._delays))}
        return json.dumps(counts | dict(quantiles(delays))).encode()


def quantiles(nanoseconds: np.ndarray) -> Mapping[str, float]:
    """Microseconds at the usual points."""
    return {name: round(float(np.percentile(nanoseconds, percent)) / 1000, 1) for name, percent in POINTS.items()}
