"""Barriers and restoring: aligned, unaligned, late; at each guarantee; with another number of readers."""

from __future__ import annotations

import threading
import time

import pytest

from bench.harness.cluster import wait_until
from shuffle_api.errors import DeadlineExceeded, InvalidArgument, StreamBroken
from shuffle_api.records import unpack_records
from shuffle_api.streaming import Barrier, Captured, EndOfPartition, ReaderState, key_group_range, redistribute
from shuffle_plugins.pipelined import DataBlock, PipelinedReader, PipelinedWriter
from shuffle_plugins.pipelined.reader import Event
from tests.shuffle_plugins.pipelined.conftest import Open
from tests.shuffle_plugins.pipelined.scene import WAIT, Scene, data, records_of, rest, until, write

EXACTLY = {"guarantee": "exactly_once"}
UNALIGNED = {**EXACTLY, "alignment": "unaligned"}
LATE = {**EXACTLY, "alignment": "aligned_with_timeout", "alignment_timeout": 0.05}


@pytest.fixture(params=["local", "connected", "relayed"])
def reach(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def captured(events: list[Event]) -> ReaderState:
    """The state that the last event carries."""
    last = events[-1]
    assert isinstance(last, Captured)
    return last.state


def in_flight(state: ReaderState) -> list[bytes]:
    return [record for block in state.blocks for record in unpack_records(block.payload)]


def test_aligned_barrier_cuts_all_maps_at_once(scene: Open) -> None:
    there = scene(maps=2, **EXACTLY)
    with there.writer(0) as one, there.writer(1) as two, there.reader() as reader:
        write(one, [1])
        one.emit(Barrier(1))
        write(one, [2])
        one.flush()
        write(two, [3])
        two.flush()
        seen: list[bytes] = []
        while len(seen) < 2:
            seen += records_of(until(reader, DataBlock))
        assert sorted(seen) == data(1, 3)
        deadline = time.monotonic() + WAIT
        while reader.statistics().blocked != (0,):  # the barrier may come later than what is before it
            assert time.monotonic() < deadline
            with pytest.raises(DeadlineExceeded):
                reader.poll(0.05)
        with pytest.raises(DeadlineExceeded):
            reader.poll(0.2)  # 2 waits behind its barrier
        write(two, [4])
        two.emit(Barrier(1))
        before = until(reader, Barrier)
        assert records_of(before) == data(4)
        assert before[-1] == Barrier(1)
        state = captured(until(reader, Captured))
        assert not state.blocks
        assert state.positions[0].blocks == {0: 1}
        one.commit()
        two.commit()
        assert records_of(rest(reader)) == data(2)


def test_barriers_without_exactly_once_hold_nothing_up(scene: Open) -> None:
    there = scene(maps=2)
    with there.writer(0) as one, there.writer(1) as two, there.reader() as reader:
        one.emit(Barrier(1))
        write(one, [1])
        one.flush()
        assert records_of(until(reader, DataBlock)) == data(1)
        two.emit(Barrier(1))
        assert until(reader, Barrier) == [Barrier(1)]
        assert captured(until(reader, Captured)).positions[0].blocks == {0: 0}  # before the record: it may be repeated
        one.commit()
        two.commit()


@pytest.mark.parametrize("options", [EXACTLY, UNALIGNED, LATE], ids=["aligned", "unaligned", "late"])
def test_map_that_has_ended_has_passed_every_barrier(scene: Open, options: dict[str, str]) -> None:
    there = scene(maps=2, **options)
    with there.writer(0) as one, there.writer(1) as two, there.reader() as reader:
        write(one, [1])
        one.commit()
        assert one.state(1, WAIT).records == 1
        write(two, [2])
        two.emit(Barrier(1))
        assert isinstance(until(reader, Captured)[-1], Captured)
        two.commit()
        rest(reader)


def test_reader_restored_after_a_map_has_ended_is_told_so_again(scene: Open) -> None:
    there = scene(maps=2, **EXACTLY)
    with there.writer(0) as one, there.writer(1) as two:
        with there.reader() as reader:
            write(one, [1])
            one.commit()
            until(reader, EndOfPartition)
            two.emit(Barrier(1))
            state = captured(until(reader, Captured))
            reader.acknowledge(1)
        with there.reader(attempt=1, restore=state) as reader:
            write(two, [2])
            two.commit()
            events = rest(reader)
    assert records_of(events) == data(2)
    assert {event.map for event in events if isinstance(event, EndOfPartition)} == {0, 1}


def behind(there: Scene, reader: PipelinedReader) -> PipelinedWriter:
    """A writer whose thread waits in `write`, as its reader takes nothing more. Records begin with their number."""
    writer = there.writer()

    def fill() -> None:
        try:
            for number in range(1000):
                writer.write(0, number.to_bytes(4, "big") + bytes(10_000))
        except (StreamBroken, InvalidArgument):
            pass  # it was aborted

    threading.Thread(target=fill, name="fill", daemon=True).start()
    deadline = time.monotonic() + WAIT
    before = writer.statistics()
    while True:
        assert time.monotonic() < deadline
        time.sleep(0.3)
        now = writer.statistics()
        stands = now.records == before.records and now.back_pressured_seconds > before.back_pressured_seconds + 0.1
        if stands and reader.statistics().held_bytes:  # not because the reader has yet to connect
            return writer
        before = now


@pytest.mark.parametrize("options", [UNALIGNED, LATE], ids=["unaligned", "late"])
def test_barrier_overtakes_what_waits_and_restoring_gives_each_record_once(
    scene: Open, options: dict[str, str]
) -> None:
    there = scene(queue_bytes=64 << 10, block_bytes=16 << 10, window=1 << 20, **options)
    numbers: list[int] = []

    def count(events: list[Event]) -> None:
        numbers.extend(int.from_bytes(record[:4], "big") for record in records_of(events))

    with there.reader() as reader:
        writer = behind(there, reader)
        count(until(reader, DataBlock))
        writer.emit(Barrier(1))  # beside the thread that waits in write
        found = writer.state(1, WAIT)
        until_barrier = until(reader, Barrier)
        count(until_barrier)
        snapshot = list(numbers)
        state = captured(until(reader, Captured))
    assert len(snapshot) < found.records
    assert found.blocks or state.blocks
    writer.abort()
    # Another attempt, and another reader, go on from the checkpoint.
    again = there.writer(attempt=1, restore=found)
    with again, there.reader(attempt=1, restore=state) as reader:
        again.write(0, found.records.to_bytes(4, "big"))
        again.commit()
        numbers = snapshot
        count(rest(reader))
    assert numbers == list(range(found.records + 1))


def test_reader_alone_goes_back_to_a_checkpoint_and_is_replayed_to(scene: Open) -> None:
    there = scene(maps=2, **EXACTLY)
    with there.writer(0) as one, there.writer(1) as two:
        with there.reader() as reader:
            for writer, start in ((one, 0), (two, 100)):
                write(writer, range(start, start + 10))
                writer.emit(Barrier(1))
                write(writer, range(start + 10, start + 20))
                writer.flush()
            before = records_of(until(reader, Barrier))
            state = captured(until(reader, Captured))
            reader.acknowledge(1)
            lost: list[bytes] = []
            while len(lost) < 20:
                lost += records_of(until(reader, DataBlock))
        with there.reader(attempt=1, restore=state) as reader:
            one.commit()
            two.commit()
            after = records_of(rest(reader))
    assert sorted(before + after, key=int) == data(*range(20), *range(100, 120))
    assert sorted(after) == sorted(lost)


def test_nothing_is_replayed_with_at_most_once(scene: Open) -> None:
    there = scene(guarantee="at_most_once")
    with there.writer() as writer:
        with there.reader() as reader:
            write(writer, [1])
            writer.flush()
            assert records_of(until(reader, DataBlock)) == data(1)
        with there.reader(attempt=1) as reader:
            write(writer, [2])
            writer.commit()
            # 2 is lost if it went to the first reader's connection before the second was there.
            assert records_of(rest(reader)) in ([], data(2))
        assert writer.statistics().logged_bytes == 0


def test_replay_begins_at_what_was_acknowledged(scene: Open) -> None:
    there = scene()
    with there.writer() as writer:
        with there.reader() as reader:
            for number in range(4):
                write(writer, [number])
                writer.flush()
                until(reader, DataBlock)
                if number == 1:
                    reader.acknowledge()  # it may get lost with the connection that ends below
                    wait_until(lambda: writer.statistics().logged_bytes == 0, "the acknowledgement")
        with there.reader(attempt=1) as reader:
            writer.commit()
            assert records_of(rest(reader)) == data(2, 3)


def test_log_is_bounded_and_what_it_forgot_is_not_replayed_in_silence(scene: Open) -> None:
    there = scene(log_bytes=2000, block_bytes=1000, **EXACTLY)
    with there.writer() as writer:
        with there.reader() as reader:
            writer.emit(Barrier(1))
            state = captured(until(reader, Captured))
            for _ in range(20):
                writer.write(0, bytes(1000))
                until(reader, DataBlock)
            found = writer.statistics()
            assert found.logged_bytes <= 2000
            assert found.forgotten_blocks >= 17
        for attempt, restore in ((1, state), (2, None)):
            with there.reader(attempt=attempt, restore=restore) as reader:
                with pytest.raises(InvalidArgument, match="block 0 of partition 0 was dropped"):
                    rest(reader)


def test_acknowledged_checkpoint_empties_the_log(scene: Open) -> None:
    there = scene(**EXACTLY)
    with there.writer() as writer, there.reader() as reader:
        write(writer, range(100))
        writer.emit(Barrier(1))
        until(reader, Captured)
        assert writer.statistics().logged_bytes > 0
        reader.acknowledge(1)
        deadline = time.monotonic() + WAIT
        while writer.statistics().logged_bytes:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(InvalidArgument, match="checkpoint 2"):
            reader.acknowledge(2)
        writer.commit()
        rest(reader)


def test_next_attempt_of_a_producer_goes_on_with_at_least_once(scene: Open) -> None:
    there = scene()
    with there.reader() as reader:
        with there.writer() as writer:
            write(writer, range(5))
            writer.flush()
            assert records_of(until(reader, DataBlock)) == data(*range(5))
        with there.writer(attempt=1) as writer:
            write(writer, range(3, 8))
            writer.commit()
            assert records_of(rest(reader)) == data(*range(3, 8))


def test_next_attempt_of_a_producer_ends_a_reader_of_exactly_once(scene: Open) -> None:
    there = scene(**EXACTLY)
    with there.writer() as writer, there.reader() as reader:
        write(writer, range(5))
        writer.flush()
        until(reader, DataBlock)
        with there.writer(attempt=1):
            with pytest.raises(StreamBroken, match="map 0 attempt 1 has taken its place"):
                rest(reader)


@pytest.mark.parametrize("options", [EXACTLY, UNALIGNED], ids=["aligned", "unaligned"])
@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1)])
def test_group_of_readers_grows_and_shrinks_by_key_groups(
    scene: Open, before: int, after: int, options: dict[str, str]
) -> None:
    groups, maps = 6, 2
    there = scene(partitions=groups, maps=maps, block_bytes=64, **options)
    writers = [there.writer(map) for map in range(maps)]
    readers = [there.reader(key_group_range(groups, before, task)) for task in range(before)]
    for map, writer in enumerate(writers):
        for number in range(60):
            writer.write(number % groups, b"%d" % (100 * map + number))
        writer.flush()
    for writer in writers:
        writer.emit(Barrier(1))
    stored = [writer.state(1, WAIT) for writer in writers]
    done: list[bytes] = []
    states = []
    for reader in readers:
        done += records_of(until(reader, Barrier))
        states.append(captured(until(reader, Captured)))
        reader.close()
    for writer in writers:
        writer.abort()
    writers = [there.writer(map, attempt=1, restore=stored[map]) for map in range(maps)]
    own = [key_group_range(groups, after, task) for task in range(after)]
    readers = [there.reader(ranges, attempt=1, restore=redistribute(states, ranges)) for ranges in own]
    for map, writer in enumerate(writers):
        assert stored[map].records == 60
        for number in range(60, 80):
            writer.write(number % groups, b"%d" % (100 * map + number))
        writer.commit()
    for ranges, reader in zip(own, readers, strict=True):
        for event in rest(reader):
            if isinstance(event, DataBlock):
                assert event.partition in ranges
                done += unpack_records(event.payload)
        reader.close()
    assert sorted(done, key=int) == data(*range(80), *range(100, 180))
