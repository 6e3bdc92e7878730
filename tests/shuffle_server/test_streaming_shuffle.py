"""The rules of a relayed shuffle, without threads, streams or clocks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shuffle_api.clock import LOOK_SHARE, LOOKS_PER_TIMEOUT, ServingClock
from shuffle_api.errors import (
    AttemptSuperseded,
    CommitMismatch,
    DeadlineExceeded,
    InvalidArgument,
    MapOutputLost,
    ShuffleError,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import ShuffleSpec, Totals
from shuffle_server.worker.relay.streaming_shuffle import StreamingShuffle
from shuffle_server.worker.relay.values import RelayReader, RelayWriter, Taken
from tests.shuffle_server.helpers import batch, block

SPEC = ShuffleSpec(ShuffleId("app", 3), 4, 2, codec="none", content="spark")
TIMEOUT = 10.0
PLENTY = 1 << 20


class Sender:
    """What a writer's stream was told."""

    def __init__(self) -> None:
        self.consumed_sizes: list[int] = []
        self.errors: list[ShuffleError] = []

    def consumed(self, size: int) -> None:
        self.consumed_sizes.append(size)

    def failed(self, error: ShuffleError) -> None:
        self.errors.append(error)


@pytest.fixture
def shuffle() -> StreamingShuffle:
    return StreamingShuffle(SPEC, TIMEOUT)


def write(shuffle: StreamingShuffle, map_id: int, *blocks: tuple[int, bytes], attempt: int = 0) -> RelayWriter:
    """A writer that has sent these blocks in one batch."""
    writer = shuffle.open_writer(MapAttempt(map_id, attempt), Sender(), 0.0)
    if blocks:
        put(shuffle, writer, *blocks)
    return writer


def put(shuffle: StreamingShuffle, writer: RelayWriter, *blocks: tuple[int, bytes]) -> None:
    shuffle.put(writer, batch([block(partition, payload) for partition, payload in blocks]), 0.0)


def end(shuffle: StreamingShuffle, writer: RelayWriter) -> None:
    shuffle.end_writer(writer, writer.totals, dict(writer.parts))


def take(shuffle: StreamingShuffle, reader: RelayReader, most: int = PLENTY) -> Taken:
    return shuffle.take(reader, most, PLENTY, 0.0, 0.0)


def payloads(taken: Taken) -> list[bytes]:
    return [bytes(chunk.payload) for chunk in taken.chunks]


def sender(writer: RelayWriter) -> Sender:
    assert isinstance(writer.sender, Sender)
    return writer.sender


def test_blocks_come_in_order_whoever_is_first_and_then_the_ends(shuffle: StreamingShuffle) -> None:
    early = shuffle.open_reader(1, 0, 0.0)
    a = write(shuffle, 0, (1, b"a1"), (2, b"a2"), (1, b"a3"))
    b = write(shuffle, 1, (1, b"b1"))
    late = shuffle.open_reader(2, 0, 0.0)
    assert payloads(take(shuffle, early)) == [b"a1", b"a3", b"b1"]
    end(shuffle, a)
    taken = take(shuffle, early)
    assert [e.output for e in taken.ends] == [a.output]
    assert not taken.finished
    assert taken.ends[0].parts[1].blocks == 2
    assert taken.ends[0].parts[2].records == 1
    end(shuffle, b)
    assert take(shuffle, early).finished
    whole = take(shuffle, late)
    assert payloads(whole) == [b"a2"]
    assert len(whole.ends) == 2
    assert whole.finished


def test_a_writer_whose_blocks_are_all_at_other_workers_ends_here_as_well(shuffle: StreamingShuffle) -> None:
    reader = shuffle.open_reader(0, 0, 0.0)
    writers = [write(shuffle, 0), write(shuffle, 1, (0, b"here"))]
    for writer in writers:
        end(shuffle, writer)
    assert shuffle.wait_read(writers[0], 0.0)
    taken = take(shuffle, reader)
    assert payloads(taken) == [b"here"]
    assert [dict(each.parts) for each in taken.ends] == [{}, writers[1].parts]
    assert taken.finished


def test_a_reader_takes_no_more_than_it_asks_for_but_at_least_one_piece(shuffle: StreamingShuffle) -> None:
    writer = write(shuffle, 0, (0, b"xxxx"))
    put(shuffle, writer, (0, b"yy"))
    end(shuffle, writer)
    reader = shuffle.open_reader(0, 0, 0.0)
    first = take(shuffle, reader, most=1)
    assert payloads(first) == [b"xxxx"]
    assert not first.ends
    assert payloads(take(shuffle, reader, most=1)) == [b"yy"]


def test_a_batch_costs_credit_until_the_last_partition_has_read_it(shuffle: StreamingShuffle) -> None:
    writer = write(shuffle, 0, (0, b"left"), (1, b"right"))
    readers = [shuffle.open_reader(p, 0, 0.0) for p in (0, 1)]
    shuffle.read(readers[0], take(shuffle, readers[0]).chunks, 0.0)
    end(shuffle, writer)
    assert sender(writer).consumed_sizes == []
    assert not shuffle.wait_read(writer, 0.0)
    shuffle.read(readers[1], take(shuffle, readers[1]).chunks, 0.0)
    assert sender(writer).consumed_sizes == [9]
    assert shuffle.wait_read(writer, 0.0)
    assert shuffle.statistics(0.0).queued_bytes == 0


@pytest.mark.parametrize("wrong", ["records", "digest", "blocks", "bytes", "partition"])
def test_a_statement_that_differs_fails_the_shuffle(shuffle: StreamingShuffle, wrong: str) -> None:
    writer = write(shuffle, 0, (0, b"x"))
    reader = shuffle.open_reader(0, 0, 0.0)
    take(shuffle, reader)
    totals, parts = writer.totals, dict(writer.parts)
    if wrong == "partition":
        parts = {1: parts[0]}
    else:
        totals = replace(totals, **{wrong: getattr(totals, wrong) + 1})
    with pytest.raises(CommitMismatch, match="the sender states"):
        shuffle.end_writer(writer, totals, parts)
    shuffle.leave_writer(writer, "was refused", 0.0)
    with pytest.raises(MapOutputLost, match="was refused"):
        take(shuffle, reader)


def test_a_writer_nobody_has_read_may_come_again_and_its_old_attempt_is_refused(shuffle: StreamingShuffle) -> None:
    first = write(shuffle, 0, (0, b"old"), attempt=5)
    shuffle.leave_writer(first, "broke off", 0.0)
    for attempt in (4, 5):
        with pytest.raises(AttemptSuperseded, match="attempt 5 of this map was here before"):
            shuffle.open_writer(MapAttempt(0, attempt), Sender(), 0.0)
    second = write(shuffle, 0, (0, b"new"), attempt=6)
    with pytest.raises(AttemptSuperseded, match="map 0 attempt 5 is refused"):
        put(shuffle, first, (0, b"late"))
    assert payloads(take(shuffle, shuffle.open_reader(0, 0, 0.0))) == [b"new"]
    assert second.totals.records == 1


def test_a_new_attempt_takes_the_place_of_one_that_is_frozen(shuffle: StreamingShuffle) -> None:
    frozen = write(shuffle, 0, (0, b"old"))
    write(shuffle, 0, (0, b"new"), attempt=1)
    assert [type(error) for error in sender(frozen).errors] == [AttemptSuperseded]
    assert payloads(take(shuffle, shuffle.open_reader(0, 0, 0.0))) == [b"new"]


def test_a_writer_that_leaves_in_the_middle_fails_all_and_is_named(shuffle: StreamingShuffle) -> None:
    gone, other = write(shuffle, 0, (0, b"x"), (1, b"y"), attempt=7), write(shuffle, 1, (1, b"z"))
    reader, idle = shuffle.open_reader(0, 0, 0.0), shuffle.open_reader(1, 0, 0.0)
    take(shuffle, reader)
    shuffle.leave_writer(gone, "broke off", 0.0)
    for attempt in (lambda: take(shuffle, reader), lambda: take(shuffle, idle), lambda: put(shuffle, other, (0, b""))):
        with pytest.raises(MapOutputLost, match="broke off") as failure:
            attempt()
        assert failure.value.output == gone.output
    assert len(sender(other).errors) == 1
    with pytest.raises(MapOutputLost):
        shuffle.open_writer(MapAttempt(0, 8), Sender(), 0.0)
    with pytest.raises(MapOutputLost):
        shuffle.open_reader(2, 0, 0.0)
    assert shuffle.statistics(0.0).queued_blocks == 0


def test_a_reader_without_blocks_may_come_again(shuffle: StreamingShuffle) -> None:
    shuffle.leave_reader(shuffle.open_reader(0, 3, 0.0), "left", 0.0)
    frozen = shuffle.open_reader(0, 4, 0.0)
    again = shuffle.open_reader(0, 5, 0.0)
    write(shuffle, 0, (0, b"x"))
    with pytest.raises(AttemptSuperseded, match="another attempt"):
        take(shuffle, frozen)
    shuffle.leave_reader(frozen, "left", 0.0)
    assert payloads(take(shuffle, again)) == [b"x"]


def test_a_reader_that_leaves_with_blocks_fails_all_and_is_named(shuffle: StreamingShuffle) -> None:
    writer = write(shuffle, 0, (2, b"x"))
    reader = shuffle.open_reader(2, 9, 0.0)
    take(shuffle, reader)
    with pytest.raises(AttemptSuperseded, match="handed out once"):
        shuffle.open_reader(2, 10, 0.0)
    shuffle.leave_reader(reader, "left", 0.0)
    assert "reader of partition 2 (attempt 9) left" in str(sender(writer).errors[0])
    with pytest.raises(MapOutputLost):
        put(shuffle, writer, (0, b"y"))


def test_partitions_and_maps_that_do_not_exist_are_refused(shuffle: StreamingShuffle) -> None:
    writer = write(shuffle, 0)
    for partition in (-1, 4):
        with pytest.raises(InvalidArgument, match="partition"):
            put(shuffle, writer, (0, b"x"), (partition, b"y"))
        with pytest.raises(InvalidArgument, match="partition"):
            shuffle.open_reader(partition, 0, 0.0)
    with pytest.raises(InvalidArgument, match="map 2"):
        write(shuffle, 2)
    assert writer.totals == Totals()


def test_statistics_have_what_came_and_what_waits(shuffle: StreamingShuffle) -> None:
    writer = write(shuffle, 0, (1, b"a1"), (2, b"a2"))
    shuffle.put(writer, batch([block(1, b"a3")]), 2.0)
    found = shuffle.statistics(5.0)
    assert (found.writers, found.readers, found.queued_blocks, found.queued_bytes) == (1, 0, 3, 6)
    assert (found.totals.blocks, found.totals.bytes, found.lag_seconds) == (3, 6, 5.0)
    assert found.queued_records == found.totals.records > 0
    take(shuffle, shuffle.open_reader(1, 0, 0.0))
    take(shuffle, shuffle.open_reader(2, 0, 0.0))
    found = shuffle.statistics(5.0)
    assert (found.readers, found.queued_records, found.lag_seconds, found.totals.blocks) == (2, 0, 0.0, 3)


def test_nobody_is_waited_for_without_end() -> None:
    def fails(shuffle: StreamingShuffle, says: str) -> None:
        shuffle.watch(TIMEOUT)
        assert shuffle.statistics(TIMEOUT).shuffle == SPEC.id
        shuffle.open_reader(3, 0, TIMEOUT)  # not yet
        shuffle.watch(TIMEOUT + 0.1)
        with pytest.raises(DeadlineExceeded, match=says):
            shuffle.open_reader(3, 1, 0.0)

    silent = StreamingShuffle(SPEC, TIMEOUT)
    write(silent, 0)
    fails(silent, "no message came from the writer of map 0 attempt 0 for 10 s")

    unread = StreamingShuffle(SPEC, TIMEOUT)
    end(unread, write(unread, 0, (1, b"x")))
    fails(unread, "partition 1 has blocks and no reader")

    stuck = StreamingShuffle(SPEC, TIMEOUT)
    end(stuck, write(stuck, 0, (1, b"x")))
    take(stuck, stuck.open_reader(1, 7, 0.0))
    fails(stuck, r"reader of partition 1 \(attempt 7\) took nothing")

    alone = StreamingShuffle(SPEC, TIMEOUT)
    alone.open_reader(0, 0, 0.0)
    end(alone, write(alone, 1))
    fails(alone, "no writer of maps 0")


def test_a_worker_that_stood_still_holds_it_against_nobody() -> None:
    now = 1000.0
    shuffle = StreamingShuffle(SPEC, TIMEOUT)
    shuffle.clock = ServingClock(LOOK_SHARE * TIMEOUT, lambda: now)
    shuffle.open_reader(0, 0, shuffle.clock())
    now += 1000 * TIMEOUT
    shuffle.watch(shuffle.clock())
    shuffle.open_reader(1, 0, shuffle.clock())
    for _ in range(LOOKS_PER_TIMEOUT):
        now += TIMEOUT / LOOKS_PER_TIMEOUT
        shuffle.watch(shuffle.clock())
    with pytest.raises(DeadlineExceeded, match="no writer"):
        shuffle.open_reader(2, 0, shuffle.clock())
