"""Key groups: every group has one owner, ranges are even, whatever the parallelism."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.errors import InvalidArgument
from shuffle_api.streaming import key_group, key_group_range, owner_of


@given(st.integers(1, 300).flatmap(lambda groups: st.tuples(st.just(groups), st.integers(1, groups))))
def test_ranges_cover_all_groups_once_and_differ_by_one_at_most(case: tuple[int, int]) -> None:
    groups, parallelism = case
    ranges = [key_group_range(groups, parallelism, task) for task in range(parallelism)]
    assert [group for own in ranges for group in own] == list(range(groups))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1
    assert all(owner_of(group, groups, parallelism) == task for task, own in enumerate(ranges) for group in own)


def test_hash_of_any_size_has_a_group() -> None:
    assert {key_group(hash, 8) for hash in range(-100, 100)} == set(range(8))


@pytest.mark.parametrize(("groups", "parallelism"), [(4, 5), (0, 1), (4, 0)])
def test_more_tasks_than_groups_are_refused(groups: int, parallelism: int) -> None:
    with pytest.raises(InvalidArgument):
        key_group_range(groups, parallelism, 0)


def test_unknown_task_and_group_are_refused() -> None:
    with pytest.raises(InvalidArgument):
        key_group_range(8, 2, 2)
    with pytest.raises(InvalidArgument):
        owner_of(8, 8, 2)
