"""A sender that keeps to a schedule, whatever the transport does: no coordinated omission.

Block i is due at `start + i / rate`. Whenever the sender is free it sends all that is due, up to a message; a block
that had to wait for its sender carries the time at which it was due. Every contender is paced by this code.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from time import perf_counter_ns

import numpy as np

LEAD_NS = 5_000_000  # until the first block, so that it is not late already


def due_blocks(rate: int, total: int, block: int, most: int) -> Iterator[np.ndarray]:
    """The payload of each message, in time: int64 of shape [n, block / 8], n <= `most`; column 0 is when it was due."""
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
