"""Markers: what travels among the data of a stream and says where in it something is. They cost no credit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import check_number
from shuffle_api.streaming.state import ReaderState


@dataclass(frozen=True, slots=True)
class Barrier:
    """Checkpoint `checkpoint` cuts the stream here (Chandy and Lamport's snapshots, as in Flink's checkpoints).

    `unaligned` says that it has overtaken data, which its sender has captured. `parallelism` is the number of tasks of
    the consumer group from here on; 0: it stays.

    :raises InvalidArgument: a number is negative.
    """

    checkpoint: int
    unaligned: bool = False
    parallelism: int = 0

    def __post_init__(self) -> None:
        check_number("checkpoint", self.checkpoint)
        check_number("parallelism", self.parallelism)


@dataclass(frozen=True, slots=True)
class Watermark:
    """No record with a time of `time` or before will follow. The unit is the application's.

    :raises InvalidArgument: `time` does not fit in 64 bits.
    """

    time: int

    def __post_init__(self) -> None:
        if not -(2**63) <= self.time < 2**63:
            raise InvalidArgument(f"watermark {self.time} does not fit in 64 bits")


@dataclass(frozen=True, slots=True)
class Idle:
    """Until more comes this input holds no watermark back."""


@dataclass(frozen=True, slots=True)
class EndOfPartition:
    """Nothing follows from `map`: it has written all it had."""

    map: int = -1


@dataclass(frozen=True, slots=True)
class Captured:
    """A reader's part of a checkpoint is complete: where each input stood, and the data that the barrier overtook.

    Comes after the checkpoint's `Barrier`: at once if barriers are aligned, else when it has arrived from every input.
    """

    checkpoint: int
    state: ReaderState


Marker: TypeAlias = Barrier | Watermark | Idle | EndOfPartition
"""What a writer may emit. (`EndOfPartition` is emitted by its commit.)"""
