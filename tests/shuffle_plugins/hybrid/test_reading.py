"""Reading while it is written, going on from the store, reading again; attempts that fail or lose."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from shuffle_api.errors import DeadlineExceeded, InternalError, InvalidArgument, StreamBroken, UnknownShuffle
from shuffle_api.ids import MapAttempt
from shuffle_api.records import unpack_records
from shuffle_plugins.pipelined.source import Source
from tests.shuffle_plugins.hybrid.conftest import Open
from tests.shuffle_plugins.hybrid.scene import WAIT, eventually, numbers, taken, write


def test_records_are_there_before_the_writer_has_ended(scene: Open) -> None:
    there = scene(wait=60.0)
    with there.writer() as writer, there.reader() as reader:
        records = iter(reader)
        write(writer, 0, 3)
        assert taken(records, 3) == numbers(0, 3)  # after flush_timeout
        write(writer, 3, 5)
        writer.flush()
        assert taken(records, 2) == numbers(3, 5)
        assert there.master.map_outputs(there.handle) == []
        writer.commit()
        assert list(records) == []
        assert (reader.statistics().stored_blocks, reader.statistics().continued) == (0, 0)
        assert writer.statistics().spilled_blocks == 0
        assert writer.statistics().live_blocks == reader.statistics().live_blocks


def test_what_was_read_live_can_be_read_again_from_the_store(scene: Open) -> None:
    there = scene(partitions=2)
    with there.writer() as writer, there.reader() as reader:
        records = iter(reader)
        write(writer, 0, 50)
        got = taken(records, 50)
        writer.write(1, b"of the other")
        writer.commit()
        assert sorted(got + list(records)) == sorted([*numbers(0, 50), (1, b"of the other")])
    for _ in range(2):
        with there.reader() as again:
            assert sorted(again) == sorted([*numbers(0, 50), (1, b"of the other")])
            assert again.statistics().live_blocks == 0


def test_lane_that_waits_too_long_is_cut_and_the_reader_goes_on_from_the_store(scene: Open) -> None:
    there = scene(wait=2.0, window=1 << 20, block_bytes=64 << 10)
    record = bytes(32 << 10)
    with there.writer() as writer, there.reader() as reader:
        records = iter(reader)
        writer.write(0, b"first")
        assert next(records) == (0, b"first")
        for _ in range(200):  # 6 MiB: more than its window and what is on the way
            writer.write(0, record)
        eventually(lambda: writer.statistics().cuts == 1)
        writer.write(0, b"last")
        writer.commit()
        assert list(records) == [(0, record)] * 200 + [(0, b"last")]
        found = reader.statistics()
        assert found.continued == 1
        assert found.live_blocks > 1
        assert found.stored_blocks > 0
        assert writer.statistics().spilled_blocks == found.stored_blocks


def test_stopped_reader_makes_no_writer_wait_and_memory_stays_in_its_budget(scene: Open) -> None:
    there = scene(partitions=2, memory=16 << 20, lane_bytes=1 << 20, window=1 << 20, block_bytes=64 << 10, codec="none")
    with there.writer() as writer, there.reader() as reader:
        records = iter(reader)
        writer.write(0, b"first")
        assert next(records) == (0, b"first")
        for number in range(1024):  # 64 MiB, and nobody takes any of it
            writer.write(number % 2, number.to_bytes(4) * (16 << 10))
            if number % 32 == 0:
                assert writer.statistics().queued_bytes <= 1 << 20
                assert there.plugin.memory().used <= 16 << 20
        assert writer.statistics().cuts == 2
        assert writer.commit().totals.records == 1025  # it does not wait for the reader
        assert there.plugin.memory().peak <= 16 << 20
        got = [(partition, int.from_bytes(record[:4]), len(record)) for partition, record in records]
        for partition in range(2):
            mine = [(number, size) for at, number, size in got if at == partition]
            assert mine == [(number, 64 << 10) for number in range(partition, 1024, 2)]


def test_without_readers_the_oldest_of_what_is_written_is_not_kept(scene: Open) -> None:
    there = scene(partitions=4, lane_bytes=64 << 10, block_bytes=4 << 10)
    with there.writer() as writer:
        for number in range(4000):
            writer.write(number % 4, bytes(100))
        found = writer.statistics()
        assert found.queued_bytes <= 64 << 10
        assert found.cuts == 4
        writer.commit()
        assert writer.statistics().queued_bytes == 0
    with there.reader() as reader:
        assert Counter(reader) == {(partition, bytes(100)): 1000 for partition in range(4)}


def test_records_that_wait_for_their_block_are_there_soon_for_a_reader_that_comes_late(scene: Open) -> None:
    there = scene(partitions=2)
    with there.writer() as writer, there.reader(range(1, 2)) as other:
        write(writer, 0, 3)
        writer.write(1, b"of the other")
        assert next(iter(other)) == (1, b"of the other")
        with there.reader(range(1)) as reader:
            assert taken(iter(reader), 3) == numbers(0, 3)
        assert writer.commit().totals.records == 4


def test_reader_that_comes_late_gets_what_is_still_there_live(scene: Open) -> None:
    there = scene(wait=60.0)
    with there.writer() as writer:
        write(writer, 0, 10)
        with there.reader() as reader:
            records = iter(reader)
            assert taken(records, 10) == numbers(0, 10)
            write(writer, 10, 12)
            writer.commit()
            assert list(records) == numbers(10, 12)
            assert reader.statistics().stored_blocks == 0


def test_second_reader_of_a_partition_waits_for_the_store_and_gets_all(scene: Open) -> None:
    there = scene(partitions=2)
    with there.writer() as writer, there.reader() as first, there.reader(range(1)) as second:
        records = iter(first)
        write(writer, 0, 5)
        assert taken(records, 5) == numbers(0, 5)
        got: list[tuple[int, bytes]] = []
        reading = threading.Thread(target=lambda: got.extend(second))
        reading.start()
        eventually(lambda: writer.statistics().readers == 2)  # attached, the second one gets the commit at once
        write(writer, 5, 9)
        assert taken(records, 4) == numbers(5, 9)
        assert not got
        writer.commit()
        assert list(records) == []
        reading.join(WAIT)
        assert got == numbers(0, 9)
        assert second.statistics().live_blocks == 0


def test_reader_that_left_and_comes_again_reads_all_from_the_store(scene: Open) -> None:
    there = scene()
    with there.writer() as writer:
        with there.reader() as first:
            records = iter(first)
            write(writer, 0, 5)
            assert taken(records, 5) == numbers(0, 5)
        eventually(lambda: writer.statistics().cuts == 1)
        write(writer, 5, 8)
        writer.commit()
    with there.reader() as again:
        assert list(again) == numbers(0, 8)


def test_attempt_that_gives_up_is_left_for_the_next_one_if_nothing_was_handed_out(scene: Open) -> None:
    there = scene(flush_timeout=3600.0)
    with there.reader() as reader:
        got: list[tuple[int, bytes]] = []
        reading = threading.Thread(target=lambda: got.extend(reader))
        with there.writer() as first:
            write(first, 0, 3)  # waits for its block until the end, which does not come
            reading.start()
            eventually(lambda: first.statistics().readers == 1)
        with there.writer(attempt=1) as second:
            eventually(lambda: second.statistics().readers == 1)
            write(second, 10, 13)
            second.commit()
        reading.join(WAIT)
        assert got == numbers(10, 13)
        assert reader.statistics().switched == 1


def test_attempt_that_gives_up_after_something_was_handed_out_is_named(scene: Open) -> None:
    there = scene()
    with there.reader() as reader:
        records = iter(reader)
        with there.writer() as first:
            write(first, 0, 3)
            assert taken(records, 3) == numbers(0, 3)
        with pytest.raises(StreamBroken, match="gave up before its end") as raised:
            list(records)
        assert raised.value.output == MapAttempt(0, 0)
    with there.writer(attempt=1) as second:
        write(second, 10, 12)
        second.commit()
    with there.reader() as again:
        assert list(again) == numbers(10, 12)


def test_first_attempt_to_commit_wins_and_readers_of_the_other_hear_of_it(scene: Open) -> None:
    there = scene()
    with there.writer(attempt=0) as slow, there.reader() as of_slow:
        records = iter(of_slow)
        write(slow, 0, 3)
        assert taken(records, 3) == numbers(0, 3)
        with there.writer(attempt=1) as fast:
            write(fast, 10, 14)
            winner = fast.commit()
        assert winner.output == MapAttempt(0, 1)
        assert slow.commit() == winner
        with pytest.raises(StreamBroken, match="attempt 1") as raised:
            list(records)
        assert raised.value.output == MapAttempt(0, 0)
    assert there.master.map_outputs(there.handle) == [winner]
    with there.reader() as again:
        assert list(again) == numbers(10, 14)


def test_reader_of_the_first_attempt_goes_on_when_a_speculative_one_loses(scene: Open) -> None:
    there = scene()
    with there.writer(attempt=0) as first, there.reader() as reader:
        records = iter(reader)
        write(first, 0, 3)
        assert taken(records, 3) == numbers(0, 3)
        with there.writer(attempt=1) as second:
            write(second, 10, 14)
            write(first, 3, 5)
            first.commit()
            assert second.commit().output == MapAttempt(0, 0)
        assert list(records) == numbers(3, 5)


def test_earlier_attempt_than_the_one_that_is_offered_can_still_win(scene: Open) -> None:
    there = scene()
    with there.writer(attempt=3), there.writer(attempt=2) as earlier, there.reader() as reader:
        write(earlier, 0, 4)
        assert earlier.commit().output == MapAttempt(0, 2)
        assert list(reader) == numbers(0, 4)


def test_reader_of_some_maps_and_partitions_goes_its_own_way(scene: Open) -> None:
    there = scene(partitions=3, maps=3)
    writers = [there.writer(map) for map in range(3)]
    with there.reader(range(1, 3), range(1, 3)) as reader:
        records = iter(reader)
        for writer in writers:
            for partition in range(3):
                writer.write(partition, b"%d" % partition)
        assert sorted(taken(records, 4)) == [(1, b"1"), (1, b"1"), (2, b"2"), (2, b"2")]
        for writer in writers[1:]:
            writer.commit()
        assert list(records) == []  # map 0 is none of its business
    writers[0].abort()


def test_blocks_name_their_attempt_live_and_from_the_store(scene: Open) -> None:
    there = scene()
    with there.writer(attempt=4) as writer, there.reader() as reader:
        blocks = reader.read_blocks()
        write(writer, 0, 2)
        writer.flush()
        partition, attempt, payload, records = next(blocks)
        assert (partition, attempt, records) == (0, MapAttempt(0, 4), len(list(unpack_records(payload))))
        writer.commit()
        assert {block[1] for block in blocks} <= {MapAttempt(0, 4)}
    with there.reader() as again:
        assert {block[1] for block in again.read_blocks()} == {MapAttempt(0, 4)}


def test_writer_that_cannot_be_reached_is_read_from_the_store_as_soon_as_it_has_committed(
    scene: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = scene()
    tried, over = threading.Event(), threading.Event()

    def unreachable(*_: object) -> Source:
        tried.set()
        over.wait(WAIT)
        raise StreamBroken("nobody answers")

    monkeypatch.setattr(there.plugin._live, "connect", unreachable)
    with there.writer() as writer, there.reader() as reader:
        got: list[tuple[int, bytes]] = []
        reading = threading.Thread(target=lambda: got.extend(reader))
        reading.start()
        assert tried.wait(WAIT)
        write(writer, 0, 3)
        writer.commit()
        reading.join(WAIT / 2)
        assert got == numbers(0, 3)
        over.set()


def test_writer_that_never_comes_is_named_at_the_deadline(scene: Open) -> None:
    there = scene(maps=2, timeout=3.0)
    with there.writer(0) as writer, there.reader() as reader:
        write(writer, 0, 1)
        writer.commit()
        with pytest.raises(DeadlineExceeded, match="map 1"):
            list(reader)


def test_reader_waits_longer_than_the_deadline_for_a_writer_that_is_there(scene: Open) -> None:
    there = scene(timeout=2.0, keepalive=30.0)
    with there.writer() as writer, there.reader() as reader:

        def late() -> None:
            write(writer, 0, 1)
            writer.commit()

        threading.Timer(4.0, late).start()
        assert list(reader) == numbers(0, 1)


def test_unregistered_shuffle_ends_its_tasks(scene: Open) -> None:
    there = scene()
    with there.writer() as writer, there.reader() as reader:
        records = iter(reader)
        write(writer, 0, 1)
        assert taken(records, 1) == numbers(0, 1)
        there.master.unregister_shuffle(there.handle)
        with pytest.raises(UnknownShuffle):
            writer.commit()
        writer.abort()
        with pytest.raises((UnknownShuffle, StreamBroken)):
            list(records)


def test_reader_is_read_once(scene: Open) -> None:
    there = scene()
    with there.writer() as writer:
        writer.commit()
    with there.reader() as reader:
        assert list(reader) == []
        with pytest.raises(InvalidArgument, match="read already"):
            list(reader)


def test_handle_of_another_plugin_is_refused(scene: Open) -> None:
    there = scene()
    there.handle = there.handle.__class__("remote", there.handle.spec, "127.0.0.1:1")
    with pytest.raises(InvalidArgument, match="remote"):
        there.reader()


def test_closed_plugin_leaves_no_thread_behind(scene: Open) -> None:
    there = scene(maps=2)
    with there.writer(0) as writer, there.writer(1), there.reader() as reader:
        write(writer, 0, 10)
        assert taken(iter(reader), 5) == numbers(0, 5)
    there.plugin.close()
    eventually(lambda: not [t.name for t in threading.enumerate() if t.name.startswith(("hybrid", "pipelined"))])


def test_a_flush_that_fails_fails_its_writer_only(scene: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    there = scene(flush_timeout=0.01)
    other = there.master.register_shuffle(1, 1)
    with there.reader() as reader, there.writer() as good, there.plugin.writer(other, MapAttempt(0, 0)) as bad:

        def broken(now: float) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(bad, "flush_late", broken)
        eventually(lambda: bad._failure is not None)
        with pytest.raises(InternalError, match="ZeroDivisionError: a bug"):
            bad.commit()
        write(good, 0, 3)
        assert taken(iter(reader), 3) == numbers(0, 3)  # after flush_timeout
