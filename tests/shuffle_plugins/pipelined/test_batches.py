"""Arrow batches through a stream: each row in its partition and its place, markers and back-pressure included."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from shuffle_api.columnar import HashPartitioner, RoundRobinPartitioner
from shuffle_api.columnar.ipc import decode, encode
from shuffle_api.errors import InvalidArgument, Overloaded
from shuffle_api.streaming import Barrier, Captured, Watermark
from shuffle_plugins.pipelined import DataBlock
from shuffle_plugins.pipelined.reader import Event
from tests.shuffle_plugins.pipelined.conftest import Open
from tests.shuffle_plugins.pipelined.scene import WAIT, rest, until

ARROW = {"content": "arrow"}
ALL = RoundRobinPartitioner()


def numbers(*values: int) -> Any:
    return pa.record_batch({"n": pa.array(values, pa.int64())})


def table(map: int, start: int, rows: int = 500) -> Any:
    """Rows of several types; `n` is unique and says which map wrote it."""
    numbers = [map * 1_000_000 + row for row in range(start, start + rows)]
    return pa.record_batch(
        {
            "n": pa.array(numbers, pa.int64()),
            "k": pa.array([n * 7919 % 101 if n % 11 else None for n in numbers], pa.int32()),
            "text": pa.array([f"row {n}" * (n % 4) if n % 5 else None for n in numbers], pa.string()),
            "kind": pa.array([("a", "b", None)[n % 3] for n in numbers]).dictionary_encode(),
        }
    )


def values_of(events: Iterable[Event]) -> list[int]:
    blocks = [event for event in events if isinstance(event, DataBlock)]
    return [value for block in blocks for value in decode(block.payload, block.records)["n"].to_pylist()]


def test_rows_come_out_as_they_went_in_each_in_its_partition(scene: Open) -> None:
    there = scene(partitions=3, maps=2, **ARROW)
    to = HashPartitioner("k", "text")
    expected: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    got: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)

    def write_map(map: int) -> None:
        with there.writer(map) as writer:
            for at in range(0, 1500, 500):
                batch = table(map, at)
                writer.write_batch(batch, to)
                for partition, row in zip(to.partitions_of(batch, 3), batch.to_pylist(), strict=True):
                    expected[map, int(partition)].append(row)
            assert writer.commit().totals.records == 1500
            writer.drain(WAIT)

    writing = [threading.Thread(target=write_map, args=(map,)) for map in range(2)]
    with there.reader() as reader:
        for thread in writing:
            thread.start()
        for partition, batch in reader.read_batches():
            assert batch.num_rows
            for row in batch.to_pylist():
                got[row["n"] // 1_000_000, partition].append(row)
    for thread in writing:
        thread.join(WAIT)
    assert got == expected


@pytest.mark.parametrize("flush_timeout", [0.005, 0])
def test_rows_are_there_before_the_writer_has_ended(scene: Open, flush_timeout: float) -> None:
    there = scene(flush_timeout=flush_timeout, **ARROW)
    with there.writer() as writer, there.reader() as reader:
        for value in range(3):
            writer.write_batch(numbers(value, value + 100), ALL)
            assert values_of(until(reader, DataBlock)) == [value, value + 100]
        writer.commit()


def test_markers_stand_between_the_rows_where_they_were_put(scene: Open) -> None:
    there = scene(flush_timeout=60, **ARROW)
    with there.writer() as writer, there.reader() as reader:
        for value in range(20):
            writer.write_batch(numbers(value), ALL)
            writer.emit(Watermark(value))
        writer.commit()
        seen = []
        for event in rest(reader):
            seen += values_of([event])
            if isinstance(event, Watermark) and event.time < 20:
                assert seen == list(range(event.time + 1))
        assert seen == list(range(20))


def test_blocks_and_batches_keep_their_order(scene: Open) -> None:
    there = scene(flush_timeout=60, **ARROW)
    with there.writer() as writer, there.reader() as reader:
        for value in range(0, 10, 2):
            writer.write_batch(numbers(value), ALL)
            writer.write_block(0, encode(numbers(value + 1)), 1)
        writer.commit()
        assert values_of(rest(reader)) == list(range(10))


def test_large_batch_waits_for_its_reader_and_memory_stays_bounded(scene: Open) -> None:
    there = scene(queue_bytes=64 << 10, window=1 << 20, **ARROW)
    batch = pa.record_batch({"n": pa.array(range(1 << 20), pa.int64())})  # 8 MiB
    with there.writer() as writer:

        def fill() -> None:
            writer.write_batch(batch, ALL)
            writer.commit()

        writing = threading.Thread(target=fill)
        writing.start()
        deadline = time.monotonic() + WAIT
        while not writer.statistics().back_pressured_seconds:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert writer.statistics().queued_bytes <= (64 << 10) + (512 << 10)
        with there.reader() as reader:
            assert sum(block.num_rows for _, block in reader.read_batches()) == 1 << 20
        writing.join(WAIT)
        assert not writing.is_alive()


def test_batch_that_finds_no_room_says_so(scene: Open) -> None:
    there = scene(queue_bytes=64 << 10, timeout=3.0, **ARROW)
    with there.writer() as writer, pytest.raises(Overloaded, match="a reader, of which there is none"):
        writer.write_batch(pa.record_batch({"n": pa.array(range(1 << 20), pa.int64())}), ALL)


def test_checkpoint_covers_rows_that_were_in_no_block_yet(scene: Open) -> None:
    there = scene(guarantee="exactly_once", flush_timeout=60, **ARROW)
    with there.writer() as writer:
        with there.reader() as reader:
            writer.write_batch(numbers(1, 2), ALL)
            writer.emit(Barrier(1))
            events = until(reader, Captured)
            assert values_of(events) == [1, 2]
            state = events[-1]
            assert isinstance(state, Captured)
            assert writer.state(1, WAIT).records == 2
            writer.write_batch(numbers(3), ALL)
            writer.flush()
            until(reader, DataBlock)
        with there.reader(attempt=1, restore=state.state) as reader:
            writer.commit()
            assert values_of(rest(reader)) == [3]


def test_records_and_batches_are_told_apart(scene: Open) -> None:
    arrow, records = scene(**ARROW), scene()
    with arrow.writer() as writer, arrow.reader() as reader:
        with pytest.raises(InvalidArgument, match="no records"):
            writer.write(0, b"x")
        with pytest.raises(InvalidArgument, match="no records"):
            next(iter(reader))
        with pytest.raises(InvalidArgument, match="no records"):
            next(reader.stream())
    with records.writer() as writer, records.reader() as reader:
        with pytest.raises(InvalidArgument, match="no batches"):
            writer.write_batch(numbers(1), ALL)
        with pytest.raises(InvalidArgument, match="no batches"):
            next(reader.read_batches())


def test_other_schema_is_refused_and_the_rest_goes_on(scene: Open) -> None:
    there = scene(**ARROW)
    with there.writer() as writer, there.reader() as reader:
        writer.write_batch(numbers(1), ALL)
        with pytest.raises(InvalidArgument, match="schema changes"):
            writer.write_batch(pa.record_batch({"other": pa.array([1])}), ALL)
        writer.write_batch(numbers(2), ALL)
        writer.commit()
        assert values_of(rest(reader)) == [1, 2]


def test_batch_without_rows_leaves_no_trace_and_a_closed_writer_takes_none(scene: Open) -> None:
    there = scene(**ARROW)
    with there.writer() as writer, there.reader() as reader:
        writer.write_batch(numbers(), ALL)
        assert writer.commit().totals.blocks == 0
        with pytest.raises(InvalidArgument, match="committed"):
            writer.write_batch(numbers(1), ALL)
        assert values_of(rest(reader)) == []


def test_categories_that_together_outgrow_their_index_type_spoil_nothing(scene: Open) -> None:
    def words(start: int) -> Any:
        values = pa.array([f"w{number}" for number in range(start, start + 100)])
        return pa.record_batch({"k": pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), values)})

    there = scene(flush_timeout=0.02, **ARROW)
    with there.reader() as reader, there.writer() as writer:
        for start in (0, 100):
            writer.write_batch(words(start), HashPartitioner("k"))
        writer.commit()
        got = [batch for _, batch in reader.read_batches()]
    assert all(batch.schema == words(0).schema for batch in got)
    assert [word for batch in got for word in batch["k"].to_pylist()] == [f"w{number}" for number in range(200)]
