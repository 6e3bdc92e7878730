"""What a checkpoint holds of a shuffle: positions, and the data that a barrier overtook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shuffle_api.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class InFlight:
    """A block between a writer and a reader. `number` counts the blocks of one map and one partition from 0."""

    map: int
    partition: int
    number: int
    records: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Position:
    """How far a reader has come in the output of one map.

    `blocks` says per partition how many of its blocks are behind it; `markers` how many of the map's markers.
    """

    blocks: Mapping[int, int] = field(default_factory=dict)
    markers: int = 0


@dataclass(frozen=True, slots=True)
class ReaderState:
    """A reader at a checkpoint: it goes on with `blocks`, then from `positions` (by map)."""

    checkpoint: int
    positions: Mapping[int, Position]
    blocks: tuple[InFlight, ...] = ()

    @classmethod
    def beginning(cls, partitions: range, maps: range) -> ReaderState:
        """A reader that has had nothing: it goes on from the very first block, if that is still kept."""
        return cls(-1, {map: Position(dict.fromkeys(partitions, 0)) for map in maps})


@dataclass(frozen=True, slots=True)
class WriterState:
    """A writer at a checkpoint. `numbers` says per partition what its next block is called, `markers` likewise.

    `records` were written before the barrier, by this writer and those it goes on from: where its source stands.
    `blocks` are those that the barrier overtook: a restored writer sends them first, under their old numbers, and who
    has them already drops them.
    `log` is where what was sent before is kept on disk, to be replayed to consumers that go back further; "": nowhere.
    """

    checkpoint: int
    map: int
    numbers: tuple[int, ...]
    markers: int
    records: int = 0
    blocks: tuple[InFlight, ...] = ()
    log: str = ""

    @property
    def begin(self) -> Position:
        """Where the writer goes on: the first block of each partition that it sends, and the next marker."""
        first = dict(enumerate(self.numbers))
        for block in self.blocks:
            first[block.partition] = min(first[block.partition], block.number)
        return Position(first, self.markers)


def redistribute(states: Iterable[ReaderState], partitions: range) -> ReaderState:
    """What a reader of `partitions` begins with, out of the states of all readers of an earlier group.

    Each partition was read by one reader, so positions and data in flight follow the partition: whatever the numbers
    of readers before and after, each block is read by the reader that has its partition now.

    :raises InvalidArgument: the states are of several checkpoints, or a partition is in none or in two of them.
    """
    states = list(states)
    checkpoints = {state.checkpoint for state in states}
    if len(checkpoints) != 1:
        raise InvalidArgument(f"states of the checkpoints {sorted(checkpoints)}", remedy="restore all from one")
    maps = {map for state in states for map in state.positions}
    positions = {map: _position(states, map, partitions) for map in maps}
    blocks = [block for state in states for block in state.blocks if block.partition in partitions]
    return ReaderState(checkpoints.pop(), positions, tuple(sorted(blocks, key=lambda block: block.number)))


def _position(states: list[ReaderState], map: int, partitions: range) -> Position:
    own = [state.positions[map] for state in states if map in state.positions]
    blocks: dict[int, int] = {}
    for partition in partitions:
        found = [position.blocks[partition] for position in own if partition in position.blocks]
        if len(found) != 1:
            raise InvalidArgument(
                f"partition {partition} of map {map} is in {len(found)} of the states",
                remedy="pass the state of every reader of the group, once",
            )
        blocks[partition] = found[0]
    return Position(blocks, min(position.markers for position in own))
