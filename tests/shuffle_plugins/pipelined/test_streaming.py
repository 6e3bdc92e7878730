"""Reading while it is written: markers in their places, flushing, back-pressure, failing peers named."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

import pytest

from shuffle_api.errors import (
    AttemptSuperseded,
    DeadlineExceeded,
    InvalidArgument,
    Overloaded,
    StreamBroken,
    UnknownShuffle,
)
from shuffle_api.records import pack_records
from shuffle_api.streaming import EndOfPartition, Idle, Watermark
from shuffle_plugins.pipelined import DataBlock
from tests.shuffle_plugins.pipelined.conftest import Open
from tests.shuffle_plugins.pipelined.scene import WAIT, data, records_of, rest, until, write


def test_records_are_there_before_the_writer_has_ended(scene: Open) -> None:
    there = scene()
    with there.writer() as writer, there.reader() as reader:
        write(writer, range(3))
        assert records_of(until(reader, DataBlock)) == data(0, 1, 2)  # after flush_timeout
        write(writer, range(3, 5))
        writer.flush()
        assert records_of(until(reader, DataBlock)) == data(3, 4)
        writer.commit()
        assert [type(event) for event in rest(reader)] == [Watermark, EndOfPartition]


def test_every_write_goes_out_at_once_without_flush_timeout(scene: Open) -> None:
    there = scene(flush_timeout=0)
    with there.writer() as writer, there.reader() as reader:
        for number in range(5):
            write(writer, [number])
            assert records_of(until(reader, DataBlock)) == data(number)
        writer.commit()


def test_markers_stand_where_they_were_put(scene: Open) -> None:
    there = scene(partitions=3)
    with there.writer() as writer, there.reader() as reader:
        for number in range(20):
            write(writer, [number], partition=number % 3)
            writer.emit(Watermark(number))
        writer.commit()
        seen = []
        for event in rest(reader):
            seen += records_of([event])
            if isinstance(event, Watermark) and event.time < 20:
                assert seen == data(*range(event.time + 1))


def test_watermark_is_the_least_of_the_maps_and_idle_ones_do_not_count(scene: Open) -> None:
    there = scene(maps=2)
    with there.writer(0) as one, there.writer(1) as two, there.reader() as reader:
        one.emit(Watermark(10))
        two.emit(Watermark(5))
        assert until(reader, Watermark)[-1] == Watermark(5)
        two.emit(Idle())
        assert until(reader, Watermark)[-1] == Watermark(10)
        two.commit()
        one.emit(Watermark(12))
        marks = [event for event in until(reader, EndOfPartition) if isinstance(event, EndOfPartition)]
        assert marks == [EndOfPartition(1)]
        one.commit()
        rest(reader)


def test_writer_waits_for_its_reader_and_says_so(scene: Open) -> None:
    there = scene(queue_bytes=4 << 10, block_bytes=1 << 10, window=1 << 20)
    record = bytes(1000)
    with there.writer() as writer:

        def fill() -> None:
            for _ in range(3000):
                writer.write(0, record)

        writing = threading.Thread(target=fill)
        writing.start()
        deadline = time.monotonic() + WAIT
        while not writer.statistics().back_pressured_seconds and time.monotonic() < deadline:
            time.sleep(0.01)
        waiting = writer.statistics()
        assert waiting.queued_bytes <= 4 << 10
        assert waiting.records < 3000
        assert [each.queued_bytes for each in waiting.subpartitions] == [waiting.queued_bytes]
        count = 0
        with there.reader() as reader:
            while count < 3000:
                count += len(records_of(until(reader, DataBlock)))
            writing.join(WAIT)
            assert writer.statistics().queued_bytes == 0
            writer.commit()
            rest(reader)


def test_write_gives_up_at_its_deadline_and_names_who_is_missing(scene: Open) -> None:
    there = scene(queue_bytes=4 << 10, block_bytes=1 << 10, timeout=3.0)
    with there.writer() as writer:
        with pytest.raises(Overloaded, match="a reader, of which there is none"):
            for _ in range(100):
                writer.write(0, bytes(1000))


def test_block_larger_than_the_queue_goes_through_alone(scene: Open) -> None:
    there = scene(queue_bytes=4 << 10)
    payload = pack_records([bytes(50_000)] * 100)
    with there.writer() as writer, there.reader() as reader:
        writer.write_block(0, payload, 100)

        def more() -> None:
            writer.write_block(0, payload, 100)
            writer.commit()

        threading.Thread(target=more).start()
        assert sum(event.records for event in rest(reader) if isinstance(event, DataBlock)) == 200


def test_reader_waits_for_a_producer_that_comes_later(scene: Open) -> None:
    there = scene()
    with there.reader() as reader:
        with pytest.raises(DeadlineExceeded, match=r"maps \[0\]"):
            reader.poll(0.05)
        with there.writer() as writer:
            write(writer, [1])
            writer.commit()
            assert records_of(rest(reader)) == data(1)


def test_missing_producer_is_named_at_the_deadline(scene: Open) -> None:
    there = scene(timeout=3.0)
    with there.reader() as reader, pytest.raises(DeadlineExceeded, match="map"):
        rest(reader)


def test_producer_that_gives_up_is_named(scene: Open) -> None:
    there = scene(guarantee="exactly_once")
    with there.reader() as reader:
        with there.writer() as writer:
            write(writer, [1])
            writer.flush()
            until(reader, DataBlock)
        with pytest.raises(StreamBroken, match="gave up before its end") as raised:
            rest(reader)
        assert raised.value.output is not None
        assert raised.value.output.map == 0


def test_unregistered_shuffle_ends_its_tasks(scene: Open) -> None:
    there = scene()
    with there.writer() as writer, there.reader() as reader:
        write(writer, [1])
        writer.flush()
        until(reader, DataBlock)
        there.master.unregister_shuffle(there.handle)
        with pytest.raises(UnknownShuffle):
            rest(reader)
        deadline = time.monotonic() + WAIT
        with pytest.raises(UnknownShuffle):  # the writer may get the error later than the reader
            while time.monotonic() < deadline:
                write(writer, range(2))


def test_partition_has_one_reader_and_a_later_attempt_takes_over(scene: Open) -> None:
    there = scene()
    with there.writer() as writer, there.reader() as first:
        write(writer, [1])
        writer.flush()
        until(first, DataBlock)
        with there.reader() as same, pytest.raises(AttemptSuperseded):
            same.poll(WAIT)
        with there.reader(attempt=1) as second:
            assert records_of(until(second, DataBlock)) == data(1)  # it was not acknowledged
            with pytest.raises(AttemptSuperseded):
                first.poll(WAIT)
            writer.commit()
            rest(second)


def test_earlier_attempt_of_a_map_cannot_be_written_after_a_later_one(scene: Open) -> None:
    there = scene()
    with there.writer(attempt=3):
        for attempt in (2, 3):
            with pytest.raises(AttemptSuperseded):
                there.writer(attempt=attempt)


def test_drain_waits_until_all_was_read(scene: Open) -> None:
    there = scene()
    with there.writer() as writer, there.reader() as reader:
        write(writer, range(10))
        writer.commit()
        with pytest.raises(DeadlineExceeded):
            writer.drain(0.05)
        assert records_of(rest(reader)) == data(*range(10))
        reader.close()
        writer.drain(WAIT)


def test_statistics_of_a_reader(scene: Open) -> None:
    there = scene(maps=2)
    with there.writer(0) as writer, there.writer(1) as other, there.reader() as reader:
        write(writer, range(10))
        writer.commit()
        other.commit()
        rest(reader)
        found = reader.statistics()
        assert (found.records, found.held_bytes, found.blocked, found.reconnects) == (10, 0, (), 0)
        assert set(found.held_by_map) == {0, 1}


def test_closed_plugin_leaves_no_thread_behind(scene: Open) -> None:
    there = scene()
    with there.writer() as writer, there.reader() as reader:
        write(writer, range(10))
        writer.commit()
        rest(reader)
    there.plugin.close()
    deadline = time.monotonic() + WAIT
    while left := [thread.name for thread in threading.enumerate() if thread.name.startswith("pipelined")]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def test_bad_markers_and_blocks_are_refused(scene: Open) -> None:
    there = scene()
    with there.writer() as writer:
        with pytest.raises(InvalidArgument, match="-1"):
            writer.write_block(0, b"", -1)
        with pytest.raises(InvalidArgument, match="no barrier 7"):
            writer.state(7, 0.1)
        with pytest.raises(InvalidArgument):
            writer.write(1, b"x")


def test_a_stream_left_in_the_middle_of_a_block_goes_on_and_nothing_else_begins_there(scene: Open) -> None:
    there = scene(flush_timeout=60)
    with there.reader() as reader, there.writer() as writer:
        for number in range(20):
            writer.write(0, b"%d" % number)
        writer.commit()
        events = reader.stream()
        got = list(itertools.islice(events, 5))
        begins: list[Callable[[], object]] = [
            lambda: reader.poll(WAIT),
            lambda: next(reader.stream()),
            lambda: next(reader.events()),
            lambda: next(iter(reader)),
        ]
        for begin in begins:
            with pytest.raises(InvalidArgument, match="a block was left in the middle"):
                begin()
        got += events
    assert [event for event in got if type(event) is tuple] == [(0, b"%d" % number) for number in range(20)]
