"""Redistribution of a reader group's state to another number of readers."""

from __future__ import annotations

import pickle

import pytest

from shuffle_api.errors import InvalidArgument
from shuffle_api.streaming import InFlight, Position, ReaderState, redistribute


def state(partitions: range, checkpoint: int = 3, markers: int = 7) -> ReaderState:
    """A reader of these partitions of maps 0 and 1; block numbers say where they are from."""
    positions = {map: Position({p: 100 * map + p for p in partitions}, markers) for map in range(2)}
    blocks = tuple(InFlight(0, p, number, 1, b"%d" % number) for p in partitions for number in (p - 2, p - 1))
    return ReaderState(checkpoint, positions, blocks)


def test_each_partition_takes_its_position_and_its_data_along() -> None:
    old = [state(range(3)), state(range(3, 6), markers=5)]
    for ranges in ([range(6)], [range(2), range(2, 4), range(4, 6)], [range(1), range(1, 6)]):
        new = [redistribute(old, own) for own in ranges]
        for own, found in zip(ranges, new, strict=True):
            assert {map: dict(found.positions[map].blocks) for map in range(2)} == {
                map: {p: 100 * map + p for p in own} for map in range(2)
            }
            assert {block.partition for block in found.blocks} == set(own)
        blocks = [block for found in new for block in found.blocks]
        assert sorted(blocks, key=str) == sorted([b for each in old for b in each.blocks], key=str)


def test_markers_are_those_that_all_readers_had() -> None:
    found = redistribute([state(range(3)), state(range(3, 6), markers=5)], range(6))
    assert found.positions[0].markers == 5


def test_incomplete_group_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="partition 3 of map 0 is in 0"):
        redistribute([state(range(3))], range(2, 5))
    with pytest.raises(InvalidArgument, match="partition 2 of map 0 is in 2"):
        redistribute([state(range(3)), state(range(2, 6))], range(6))


def test_states_of_several_checkpoints_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"\[3, 4\]"):
        redistribute([state(range(3)), state(range(3, 6), checkpoint=4)], range(6))


def test_states_survive_pickling() -> None:
    assert pickle.loads(pickle.dumps(state(range(3)))) == state(range(3))
