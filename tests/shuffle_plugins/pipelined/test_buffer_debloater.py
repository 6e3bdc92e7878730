"""The window follows what the task can process in the target time."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from shuffle_plugins.pipelined import DataBlock
from shuffle_plugins.pipelined.buffer_debloater import BufferDebloater
from tests.shuffle_plugins.pipelined.conftest import Open
from tests.shuffle_plugins.pipelined.scene import WAIT, until

START = BufferDebloater(target=0.5, least=100, most=10_000, window=10_000)


def test_window_is_what_is_processed_in_the_target_time() -> None:
    found = START
    for _ in range(20):
        found = found.measured(800, 0.4)  # 2000 bytes/s
    assert found.window == 1000


def test_time_without_work_says_nothing() -> None:
    assert START.measured(0, 1.0) is START
    assert START.measured(10, 0.0) is START


def test_small_changes_are_not_worth_telling() -> None:
    found = START.measured(2000, 1.0)
    assert found.window == 1000
    assert found.measured(2200, 1.0).window == 1000
    assert found.measured(9000, 1.0).window > 1000


@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 100)), max_size=20))
def test_window_stays_within_its_bounds(measurements: list[tuple[int, float]]) -> None:
    found = START
    for size, busy in measurements:
        found = found.measured(size, busy)
        assert found.least <= found.window <= found.most


def test_slow_reader_shrinks_what_waits_for_it(scene: Open) -> None:
    there = scene(queue_bytes=4 << 20, block_bytes=4 << 10, debloat_target=0.5, flush_timeout=0)
    with there.writer() as writer, there.reader() as reader:
        deadline = time.monotonic() + WAIT
        while writer.statistics().queue_limit == 4 << 20:
            assert time.monotonic() < deadline
            writer.write(0, bytes(1000))
            until(reader, DataBlock)
            time.sleep(0.02)  # about 50 kB/s
        assert reader.statistics().window < 4 << 20
        deadline = time.monotonic() + WAIT
        while writer.statistics().queue_limit != 4 << 20:  # as fast as can be
            assert time.monotonic() < deadline
            for _ in range(100):
                writer.write(0, bytes(100_000))
                until(reader, DataBlock)
