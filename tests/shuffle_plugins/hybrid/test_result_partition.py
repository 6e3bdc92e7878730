"""What is offered to live readers, without plugin and server: from the first block on, in order, within bounds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from shuffle_api.errors import MapOutputLost, StreamBroken
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.streaming import EndOfPartition
from shuffle_api.values import ShuffleSpec
from shuffle_plugins.hybrid.result_partition import HybridResultPartition
from shuffle_plugins.pipelined.subpartition_view import SubpartitionView
from shuffle_transport.pool import BufferPool

PARTITIONS, SIZE = 4, 1000


class Offered:
    """Subpartitions in a pool, and what was offered."""

    def __init__(self, *, limit: int = 1 << 20, budget: int = 16 << 20, wait: float = 3600.0) -> None:
        self.pool = BufferPool(budget)
        self.result_partition = HybridResultPartition(
            ShuffleSpec(ShuffleId("app", 0), PARTITIONS, 1), MapAttempt(0, 0), pool=self.pool, limit=limit, wait=wait
        )
        self.count = 0

    def offer(self, *partitions: int, size: int = SIZE) -> None:
        for partition in partitions:
            self.result_partition.offer(
                partition, memoryview(self.count.to_bytes(4) + bytes(size - 4)), 1, foreign=True
            )
            self.count += 1

    def read(self, start: int, stop: int) -> SubpartitionView:
        return self.result_partition.subscribe(f"{start}-{stop}", 0, range(start, stop), None)


Make: TypeAlias = Callable[..., Offered]


@pytest.fixture
def offering() -> Iterator[Make]:
    """Makes scenes; in the end no memory is held."""
    scenes: list[Offered] = []

    def make(**bounds: Any) -> Offered:
        scenes.append(Offered(**bounds))
        return scenes[-1]

    yield make
    for scene in scenes:
        scene.result_partition.fail(StreamBroken("the test is over"))
        assert scene.pool.statistics().used == 0


@pytest.fixture
def offered(offering: Make) -> Offered:
    return offering()


def take(view: SubpartitionView) -> tuple[list[tuple[int, int]], bool]:
    """Partition and number of all blocks that are there; whether the end is."""
    found: list[tuple[int, int]] = []
    while True:
        blocks, marks = view.take(10 * SIZE, 0.0)
        found += [(block.partition, block.number) for block in blocks]
        if not blocks or marks:
            return found, any(isinstance(mark.marker, EndOfPartition) for mark in marks)


def test_reader_gets_its_partitions_in_the_order_written(offered: Offered) -> None:
    offered.offer(0, 1, 2, 1, 0, 3)
    reader = offered.read(1, 3)
    offered.offer(2, 0, 1)
    assert take(reader) == ([(1, 0), (2, 0), (1, 1), (2, 1), (1, 2)], False)
    offered.result_partition.commit()
    assert take(reader) == ([], True)
    assert reader.numbers() == {1: 3, 2: 2}


def test_second_reader_of_a_partition_gets_the_end_and_no_blocks(offered: Offered) -> None:
    offered.offer(0, 1)
    first = offered.read(0, 2)
    second = offered.read(1, 3)
    offered.offer(0, 1, 2)
    assert take(first)[0] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    offered.result_partition.commit()
    assert take(second) == ([], True)


def test_full_lanes_are_cut_those_without_a_reader_first(offering: Make) -> None:
    scene = offering(limit=10 * SIZE)
    reader = scene.read(0, 1)
    scene.offer(*[0] * 5, *[1] * 2, *[2] * 3)
    scene.offer(0)  # for which subpartition 2 goes, the largest without a reader
    assert scene.result_partition.statistics().cuts == 1
    scene.offer(2)
    assert scene.result_partition.statistics().spilled_blocks == 4
    scene.offer(0, 0, 0)  # and then subpartition 1
    assert scene.result_partition.statistics().cuts == 2
    scene.offer(*[0] * 2)  # and then there is no other
    assert take(reader)[0] == []
    assert scene.result_partition.statistics().cuts == 3
    scene.result_partition.commit()
    assert take(reader) == ([], True)
    assert reader.numbers() == {0: 11}


def test_block_larger_than_the_bound_goes_by_the_store_and_so_does_what_follows(offering: Make) -> None:
    scene = offering(limit=10 * SIZE)
    reader = scene.read(0, 4)
    scene.offer(0, 1)
    scene.offer(0, size=11 * SIZE)
    scene.offer(1)
    assert take(reader)[0] == []  # they had one reader, and so one subpartition


def test_lane_is_cut_after_its_time_however_much_there_is(offering: Make) -> None:
    scene = offering(wait=5.0)
    reader = scene.read(0, 1)
    scene.offer(0, 1)
    scene.result_partition.spill_late(time.monotonic())
    assert take(reader)[0] == [(0, 0)]
    scene.offer(0)
    scene.result_partition.spill_late(time.monotonic() + 6.0)
    assert take(reader) == ([], False)
    assert scene.result_partition.statistics().cuts == 2
    scene.offer(0)
    assert scene.result_partition.wanted == frozenset()


def test_pressed_pool_takes_no_more(offering: Make) -> None:
    scene = offering(limit=64 << 20, budget=4 << 20)
    with scene.pool.reserve(1 << 20, 0.0):
        scene.offer(*range(PARTITIONS), size=1 << 19)
        scene.offer(*range(PARTITIONS), size=1 << 19)
        assert scene.pool.statistics().used <= 4 << 20
        assert 0 < scene.result_partition.statistics().cuts < PARTITIONS


def test_reader_that_leaves_frees_its_lane_for_nobody(offered: Offered) -> None:
    reader = offered.read(0, 2)
    offered.offer(0, 1)
    reader.close()
    offered.offer(0, 1)
    again = offered.read(0, 2)
    assert take(again) == ([], False)
    offered.result_partition.commit()
    assert take(again) == ([], True)
    assert offered.result_partition.connected == 1
    again.close(finished=True)
    assert offered.result_partition.over
    assert offered.pool.statistics().used == 0


def test_committed_output_takes_no_new_reader_and_keeps_nothing_for_nobody(offered: Offered) -> None:
    offered.offer(0, 1)
    offered.result_partition.commit()
    assert offered.result_partition.over
    assert offered.result_partition.statistics().queued_bytes == 0
    with pytest.raises(MapOutputLost, match="store"):
        offered.read(0, 1)


def test_failed_output_tells_its_readers(offered: Offered) -> None:
    reader = offered.read(0, 1)
    offered.offer(0)
    offered.result_partition.fail(StreamBroken("gone"))
    with pytest.raises(StreamBroken, match="gone"):
        take(reader)
    offered.offer(0)  # a writer that has not seen the failure yet may still offer
    with pytest.raises(StreamBroken, match="gone"):
        offered.read(0, 1)


@pytest.mark.parametrize("seed", range(200))
def test_whatever_happens_a_reader_has_the_first_so_many_blocks_of_each_partition(seed: int, offering: Make) -> None:
    chance = random.Random(seed)
    scene = offering(limit=chance.choice([3, 8, 1000]) * SIZE, wait=5.0)
    readers: list[tuple[SubpartitionView, dict[int, int]]] = []
    now = time.monotonic()
    for _ in range(chance.randrange(5, 150)):
        step = chance.randrange(10)
        if step < 6:
            scene.offer(chance.randrange(PARTITIONS))
        elif step == 6:
            start = chance.randrange(PARTITIONS)
            stop = chance.randrange(start, PARTITIONS) + 1
            reader = scene.read(start, stop)
            readers.append((reader, dict.fromkeys(range(start, stop), 0)))
        elif step == 7 and readers and chance.randrange(4) == 0:
            readers.pop(chance.randrange(len(readers)))[0].close()
        elif step == 8 and chance.randrange(4) == 0:
            scene.result_partition.spill_late(now + 10.0)
        elif readers:
            collect(*chance.choice(readers))
        found = scene.result_partition.statistics()
        assert found.queued_bytes <= 1000 * SIZE
        assert found.live_blocks + found.queued_blocks + found.spilled_blocks == scene.count
        assert found.reserved_bytes == scene.pool.statistics().used
        assert found.queued_bytes <= found.reserved_bytes
    scene.result_partition.commit()
    for reader, had in readers:
        assert collect(reader, had)
        assert all(had[partition] <= number for partition, number in reader.numbers().items())


def collect(reader: SubpartitionView, had: dict[int, int]) -> bool:
    """Take what is there, each block the next of its partition; whether the end came."""
    found, ended = take(reader)
    for partition, number in found:
        assert had[partition] == number
        had[partition] += 1
    return ended
