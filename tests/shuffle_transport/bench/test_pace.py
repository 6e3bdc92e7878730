"""Blocks are due by the schedule, and carry when they were."""

import time
from time import perf_counter_ns

import numpy as np

from shuffle_transport.bench.arrivals import due_blocks


def test_due_blocks_are_all_there_in_order_at_the_rate() -> None:
    due = np.concatenate([message[:, 0] for message in due_blocks(10_000, 200, 64, 50)])
    assert len(due) == 200
    assert set(np.diff(due)) <= {100_000, 99_999, 100_001}


def test_due_blocks_are_never_sent_early() -> None:
    for message in due_blocks(5_000, 50, 16, 50):
        assert message[-1, 0] <= perf_counter_ns()


def test_a_sender_that_was_held_up_catches_up_in_large_messages_with_the_old_times() -> None:
    messages = due_blocks(100_000, 1000, 64, 100)
    first = next(messages)
    time.sleep(0.05)  # all that is left is due by now
    sizes = [len(message) for message in messages]
    assert max(sizes) == 100
    assert len(first) + sum(sizes) == 1000
    assert len(sizes) <= 12
