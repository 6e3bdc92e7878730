"""Key groups: the units in which keyed state and its input move when a group of tasks grows or shrinks.

A shuffle has a partition per key group; a task reads a contiguous range of them. The arithmetic is that of Flink's
`org.apache.flink.runtime.state.KeyGroupRangeAssignment`: ranges differ by at most one in size, for any parallelism.
"""

from __future__ import annotations

from shuffle_api.errors import InvalidArgument


def key_group(hash: int, groups: int) -> int:
    """The key group of a key with this hash (any integer, spread well over its low bits).

    :raises InvalidArgument: `groups` is below 1.
    """
    _check(1, groups)
    return hash % groups


def key_group_range(groups: int, parallelism: int, task: int) -> range:
    """The key groups of one of `parallelism` tasks.

    :raises InvalidArgument: not 1 <= parallelism <= groups, or no such task.
    """
    _check(parallelism, groups)
    if not 0 <= task < parallelism:
        raise InvalidArgument(f"task {task} is not in [0, {parallelism})")
    return range(-(-task * groups // parallelism), -(-(task + 1) * groups // parallelism))


def owner_of(group: int, groups: int, parallelism: int) -> int:
    """The task that has this key group.

    :raises InvalidArgument: not 1 <= parallelism <= groups, or no such key group.
    """
    _check(parallelism, groups)
    if not 0 <= group < groups:
        raise InvalidArgument(f"key group {group} is not in [0, {groups})")
    return group * parallelism // groups


def _check(parallelism: int, groups: int) -> None:
    if not 1 <= parallelism <= groups:
        raise InvalidArgument(
            f"a parallelism of {parallelism} with {groups} key groups",
            remedy="use 1 or more tasks, and at most as many as there are key groups",
        )
