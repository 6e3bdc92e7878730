"""The oracle: same seed same workload, and every way of breaking the law is named."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.ids import MapAttempt
from shuffle_api.testing import oracle
from shuffle_api.testing.oracle import TAG, Record, Workload

WORKLOAD = Workload(seed=1, partitions=3, maps=2, records=40)
WINNERS = [MapAttempt(0, 0), MapAttempt(1, 3)]
EXPECTED = WORKLOAD.expected(WINNERS, range(3))


def tagged(map: int, number: int, partition: int = 0) -> Record:
    return partition, TAG.pack(map, 0, number)


def test_same_seed_gives_the_same_records_and_another_seed_others() -> None:
    attempt = MapAttempt(0, 0)
    assert WORKLOAD.written(attempt) == Workload(seed=1, partitions=3, maps=2, records=40).written(attempt)
    assert WORKLOAD.written(attempt) != Workload(seed=2, partitions=3, maps=2, records=40).written(attempt)


def test_attempts_of_one_map_write_different_records() -> None:
    first, second = (set(WORKLOAD.written(MapAttempt(0, n))) for n in (0, 1))
    assert {record for _, record in first & second} <= {b""}


def test_workload_has_the_records_it_says_some_of_them_empty() -> None:
    workload = Workload(seed=3, partitions=5, maps=1, records=500, size=10)
    written = workload.written(MapAttempt(0, 0))
    assert len(written) == 500
    assert {partition for partition, _ in written} == set(range(5))
    assert {len(record) for _, record in written} == {0, *range(TAG.size, TAG.size + 11)}
    assert workload.attempts() == [MapAttempt(0, 0)]


def test_expected_are_the_winners_records_of_the_range() -> None:
    assert WORKLOAD.expected(WINNERS[1:], range(1, 2)) == [
        record for record in WORKLOAD.written(WINNERS[1]) if record[0] == 1
    ]


@given(st.integers())
def test_any_interleaving_that_keeps_each_maps_order_is_right(seed: int) -> None:
    chance = random.Random(seed)
    streams = [list(WORKLOAD.written(winner)) for winner in WINNERS]
    got: list[Record] = []
    while any(streams):
        stream = chance.choice(streams)
        if stream:
            got.append(stream.pop(0))
    oracle.verify(EXPECTED, got)


def test_lost_record_is_named() -> None:
    [problem] = oracle.problems([tagged(0, 1), tagged(4, 2)], [tagged(0, 1)])
    assert problem == "1 records lost: partition 0 map 4 attempt 0 record 2 (12 bytes)"


def test_repeated_record_is_named_even_when_it_is_empty() -> None:
    problems = oracle.problems([tagged(0, 1), (2, b"")], [tagged(0, 1), tagged(0, 1), (2, b""), (2, b"")])
    assert problems == ["2 records repeated: partition 0 map 0 attempt 0 record 1 (12 bytes), partition 2 b''"]


def test_record_of_a_loser_or_of_another_range_is_named() -> None:
    [problem] = oracle.problems([], [(1, TAG.pack(0, 7, 3))])
    assert "never written by a winner, or not of this range" in problem
    assert "map 0 attempt 7 record 3" in problem


def test_record_in_another_partition_is_lost_there_and_foreign_here() -> None:
    assert len(oracle.problems([tagged(0, 1)], [tagged(0, 1, partition=5)])) == 2


def test_changed_byte_is_found() -> None:
    got = [(partition, record[:-1] + b"\0" if n == 0 else record) for n, (partition, record) in enumerate(EXPECTED)]
    assert got != EXPECTED
    with pytest.raises(AssertionError, match="1 records lost"):
        oracle.verify(EXPECTED, got)


def test_order_is_checked_per_map_and_partition_only() -> None:
    expected = [tagged(0, 1), tagged(0, 2), tagged(1, 1), tagged(0, 0, partition=1)]
    oracle.verify(expected, [tagged(1, 1), tagged(0, 0, partition=1), tagged(0, 1), tagged(0, 2)])
    [problem] = oracle.problems(expected, [tagged(0, 2), tagged(0, 1), tagged(1, 1), tagged(0, 0, partition=1)])
    assert problem == "1 records out of order: partition 0 map 0 attempt 0 record 1 (12 bytes)"


def test_message_stays_short_however_much_is_wrong() -> None:
    [problem] = oracle.problems([tagged(0, n) for n in range(1000)], [])
    assert problem.startswith("1000 records lost")
    assert len(problem) < 500
