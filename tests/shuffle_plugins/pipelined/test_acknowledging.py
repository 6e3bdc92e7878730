"""What counts as processed, and so is not kept for the next reader."""

from __future__ import annotations

import pytest

from shuffle_api.streaming import Barrier, Captured
from shuffle_plugins.pipelined import DataBlock, PipelinedReader
from shuffle_plugins.pipelined import reader as readers
from tests.shuffle_plugins.pipelined.conftest import Open
from tests.shuffle_plugins.pipelined.scene import WAIT, data, records_of, rest, until, write


@pytest.fixture(params=["local", "connected", "relayed"])
def reach(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def received(reader: PipelinedReader, blocks: int) -> None:
    """Wait until so many blocks of map 0 are there."""
    gate = reader._gate
    with gate.changed:
        assert gate.changed.wait_for(lambda: gate.inputs[0].received.blocks.get(0) == blocks, WAIT)


def next_attempt_is_read(reader: PipelinedReader, attempt: int) -> None:
    """Wait until the reader has the next attempt's numbers."""
    gate = reader._gate
    while True:
        with gate.changed:
            found = gate.inputs[0].attempt
            if found is not None and found.attempt == attempt:
                return
            gate.changed.wait(0.05)


def test_blocks_of_an_earlier_attempt_do_not_acknowledge_those_of_the_next(scene: Open) -> None:
    there = scene(flush_timeout=0)
    with there.reader() as reader:
        with there.writer() as writer:
            write(writer, range(5))
            received(reader, 5)
        with there.writer(attempt=1) as writer:
            write(writer, range(10, 15))
            next_attempt_is_read(reader, 1)
            received(reader, 5)
            assert records_of(until(reader, DataBlock)) == data(0)
            for _ in range(3):
                until(reader, DataBlock)
            reader.acknowledge()
            reader.close()
            with there.reader(attempt=1) as successor:
                writer.commit()
                assert records_of(rest(successor)) == data(*range(10, 15))


def test_iterator_does_not_acknowledge_the_next_attempt_with_numbers_of_the_one_before(
    scene: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "ACK_BYTES", 1)  # it acknowledges whenever it is asked for more
    there = scene(flush_timeout=0)
    with there.reader() as reader:
        blocks = reader.read_blocks()
        with there.writer() as writer:
            write(writer, range(3))
            received(reader, 3)
        with there.writer(attempt=1) as writer:
            write(writer, range(3))
            next_attempt_is_read(reader, 1)
            received(reader, 3)
            for _ in range(3):
                next(blocks)
            reader.close()
            with there.reader(attempt=1) as successor:
                writer.commit()
                assert records_of(rest(successor)) == data(0, 1, 2)


def test_checkpoint_of_an_earlier_attempt_does_not_acknowledge_the_next(scene: Open) -> None:
    there = scene(flush_timeout=0)
    with there.reader() as reader:
        with there.writer() as writer:
            write(writer, range(5))
            writer.emit(Barrier(1))
            until(reader, Captured)
        with there.writer(attempt=1) as writer:
            write(writer, range(5))
            next_attempt_is_read(reader, 1)
            received(reader, 5)
            reader.acknowledge(1)
            reader.close()
            with there.reader(attempt=1) as successor:
                writer.commit()
                assert records_of(rest(successor)) == data(*range(5))


def test_reader_that_fails_after_the_end_has_acknowledged_nothing(scene: Open) -> None:
    there = scene()
    with there.writer() as writer:
        write(writer, range(5))
        writer.commit()
        with pytest.raises(ZeroDivisionError), there.reader() as reader:
            rest(reader)
            raise ZeroDivisionError
        with there.reader(attempt=1) as reader:
            assert records_of(rest(reader)) == data(*range(5))
        with there.reader(attempt=2) as reader:  # `events` leaves it to the caller
            assert records_of(rest(reader)) == data(*range(5))
            reader.acknowledge()
        with there.reader(attempt=3) as reader:
            assert records_of(rest(reader)) == []


def test_iterator_has_acknowledged_all_at_its_end(scene: Open) -> None:
    there = scene()
    with there.writer() as writer:
        write(writer, range(5))
        writer.commit()
        with there.reader() as reader:
            assert [record for _, record in reader] == data(*range(5))
        writer.drain(WAIT)
        with there.reader(attempt=1) as reader:
            assert records_of(rest(reader)) == []
