"""Blocks on a schedule: a sender that keeps to it, and when they came, against when they were meant to be sent.

The first eight bytes of each block are the time on its schedule. Both ends read the same clock (CLOCK_MONOTONIC, which
is the machine's, not the process's), so the difference is the time one way, and a sender that falls behind its
schedule shows up in it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from time import perf_counter_ns

import numpy as np

from shuffle_api.buffer import Buffer

POINTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99_9": 99.9, "max": 100.0}
LEAD_NS = 5_000_000  # until the first block, so that it is not late already


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


def due_blocks(rate: int, total: int, block: int, most: int) -> Iterator[np.ndarray]:
    """A sender that keeps to a schedule, whatever the transport does: no coordinated omission.

    Block i is due at `start + i / rate`. Whenever the sender is free it sends all that is due, up to a message; a block
    that had to wait for its sender carries the time at which it was due. Every contender is paced by this code.

    The payload of each message, in time: int64 of shape [n, block / 8], n <= `most`; column 0 is when it was due.
    """
    start = perf_counter_ns() + LEAD_NS
    schedule = start + (np.arange(total) * (1e9 / rate)).astype(np.int64)
    sent = 0
    while sent < total:
        late = perf_counter_ns() - int(schedule[sent])
        if late < 0:
            time.sleep(-late / 1e9)
            continue
        end = min(total, sent + most, 1 + sent + int(late * rate / 1e9))
        message = np.zeros((end - sent, block // 8), np.int64)
        message[:, 0] = schedule[sent:end]
        yield message
        sent = end
