"""Values: checked where they are made, equal after pickling."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.errors import InvalidArgument, MapOutputNotWritten
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import (
    BLOCKING,
    CONTENTS,
    HYBRID,
    PIPELINED,
    MapOutput,
    PartitionMode,
    ShuffleHandle,
    ShuffleSpec,
    Totals,
    WorkerInfo,
    name_numbers,
)

ID = ShuffleId("app", 1)
SPEC = ShuffleSpec(ID, partitions=4, maps=3)


@pytest.mark.parametrize(
    "value",
    [
        SPEC,
        ShuffleHandle("memory", SPEC, "memory:1"),
        MapOutput(MapAttempt(1, 2), "w", Totals(1, 2, 3, 4, 5)),
        WorkerInfo("w", "host", 1, 2),
        PIPELINED,
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_frozen_and_equal_after_pickling(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    with pytest.raises((FrozenInstanceError, TypeError)):
        value.extra = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(("partitions", "maps"), [(0, 1), (-1, 1), (1, -1), (2**31, 1), (1, 2**31)])
def test_impossible_spec_is_refused(partitions: int, maps: int) -> None:
    with pytest.raises(InvalidArgument, match=str(partitions if not 1 <= partitions < 2**31 else maps)):
        ShuffleSpec(ID, partitions, maps)


def test_spec_without_maps_or_of_the_largest_size_is_fine() -> None:
    assert ShuffleSpec(ID, 1, 0).maps == 0
    assert ShuffleSpec(ID, 2**31 - 1, 2**31 - 1).partitions == 2**31 - 1


def test_unknown_content_is_refused_and_the_known_ones_are_listed() -> None:
    with pytest.raises(InvalidArgument, match="'rows'.*records, opaque, arrow, spark"):
        replace(SPEC, content="rows")
    assert all(replace(SPEC, content=content).content == content for content in CONTENTS)


def test_partitions_and_maps_are_checked_against_the_spec() -> None:
    SPEC.check_partition(0)
    SPEC.check_partition(3)
    SPEC.check_map(2)
    with pytest.raises(InvalidArgument, match=r"partition 4 is not in \[0, 4\)"):
        SPEC.check_partition(4)
    with pytest.raises(InvalidArgument, match=r"map -1 is not in \[0, 3\)"):
        SPEC.check_map(-1)


def test_ranges_within_the_spec_are_accepted_and_none_means_all_maps() -> None:
    assert SPEC.check_ranges(range(4), None) == range(3)
    assert SPEC.check_ranges(range(1, 2), range(2, 3)) == range(2, 3)
    assert SPEC.check_ranges(range(4, 4), range(0)) == range(0)


@pytest.mark.parametrize("bad", [range(5), range(-1, 1), range(0, 4, 2), range(3, 0, -1)])
def test_ranges_that_leave_the_spec_or_skip_are_refused(bad: range) -> None:
    with pytest.raises(InvalidArgument, match="partition range"):
        SPEC.check_ranges(bad, None)
    with pytest.raises(InvalidArgument, match="map range"):
        SPEC.check_ranges(range(1), bad)


def test_missing_maps_are_named() -> None:
    SPEC.check_written(range(1, 3), [2, 1])
    with pytest.raises(MapOutputNotWritten, match="committed yet: 0, 2 ") as raised:
        SPEC.check_written(range(3), [1, 7])
    assert raised.value.shuffle == ID


@pytest.mark.parametrize("worker", ["", "a/b", "w w", "x" * 65])
def test_worker_id_that_is_no_name_is_refused(worker: str) -> None:
    with pytest.raises(InvalidArgument, match="worker id"):
        WorkerInfo(worker, "host", 1)


def test_worker_address_puts_brackets_around_ipv6() -> None:
    assert WorkerInfo("w", "host", 7070).address == "host:7070"
    assert WorkerInfo("w", "::1", 7070).address == "[::1]:7070"


def test_presets_differ_in_what_they_promise() -> None:
    assert (PIPELINED.start, PIPELINED.release, PIPELINED.bounded) == ("while_writing", "when_consumed", True)
    assert (BLOCKING.start, BLOCKING.release, BLOCKING.persistent) == ("after_commit", "when_unregistered", True)
    assert (HYBRID.start, HYBRID.release, HYBRID.reconsumable) == ("while_writing", "when_unregistered", True)


def test_mode_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="reconsumable"):
        PartitionMode(True, False, False, "while_writing", "when_consumed")
    with pytest.raises(InvalidArgument, match="block its writer"):
        replace(BLOCKING, bounded=True)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([3], "3"), ([3, 1], "1, 3"), ([2, 1, 0], "0-2"), ([7, 0, 1, 1, 3, 8], "0-1, 3, 7-8")],
)
def test_numbers_are_named_in_groups(numbers: list[int], text: str) -> None:
    assert name_numbers(numbers) == text


@given(st.sets(st.integers(0, 10_000)), st.integers(1, 30))
def test_however_many_numbers_there_are_the_text_stays_short(numbers: set[int], most: int) -> None:
    text = name_numbers(numbers, most)
    assert text.count(",") < most
    assert len(text) < 16 * most + 40
