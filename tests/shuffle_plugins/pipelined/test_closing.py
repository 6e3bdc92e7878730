"""Closing goes on whatever one part says, and gives all memory back."""

from __future__ import annotations

import time

import pytest

from shuffle_plugins.pipelined import DataBlock
from shuffle_plugins.pipelined.closing import close_all
from tests.shuffle_plugins.pipelined.conftest import Open
from tests.shuffle_plugins.pipelined.scene import WAIT, until, write


def test_every_step_is_done_and_the_first_error_is_raised() -> None:
    done: list[int] = []

    def step(number: int) -> None:
        done.append(number)
        if number in (1, 2):
            raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        close_all([lambda: step(0), lambda: step(1), lambda: step(2), lambda: step(3)])
    assert done == [0, 1, 2, 3]


def test_plugin_closes_everything_although_a_writer_cannot_be_aborted(
    scene: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = scene()
    writer, reader = there.writer(), there.reader()
    write(writer, range(10))
    writer.flush()
    until(reader, DataBlock)

    def fail() -> None:
        raise OSError("no")

    monkeypatch.setattr(writer, "abort", fail)
    with pytest.raises(OSError, match="no"):
        there.plugin.close()
    assert there.plugin.memory().used == 0
    there.plugin.close()


def test_tasks_that_have_ended_hold_no_memory(scene: Open) -> None:
    there = scene(maps=2)
    with there.reader() as reader:
        for map in range(2):
            with there.writer(map) as writer:
                write(writer, range(1000))
                writer.commit()
        assert there.plugin.memory().used > 0
        assert sum(event.records for event in reader.events() if isinstance(event, DataBlock)) == 2000
    deadline = time.monotonic() + WAIT
    directory = 0 if there.local else 2 << 20  # both ends of the channel to the driver
    while there.plugin.memory().used > directory:
        assert time.monotonic() < deadline
        time.sleep(0.01)
