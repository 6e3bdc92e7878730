"""What an operation brought about, for those who must act on it: delete files, tell watchers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from shuffle_api.ids import ShuffleId
from shuffle_api.values import MapOutput, WorkerInfo


@dataclass(frozen=True, slots=True)
class MapOutputCommitted:
    """The first attempt of this map has committed and is visible from now on."""

    shuffle: ShuffleId
    output: MapOutput


@dataclass(frozen=True, slots=True)
class LostOutput:
    """A committed map output is gone: where it lay and why. Its map has to run again."""

    shuffle: ShuffleId
    output: MapOutput
    reason: str


@dataclass(frozen=True, slots=True)
class OutputMoved:
    """A committed map output lies at other workers than before, `output` says at which. Nothing has to run again."""

    shuffle: ShuffleId
    output: MapOutput


@dataclass(frozen=True, slots=True)
class ShuffleRemoved:
    """A shuffle is gone: nothing of it may be read or committed any more, its files can be deleted. `workers` held its
    committed outputs."""

    id: ShuffleId
    workers: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class AppRemoved:
    """An application is gone. The `ShuffleRemoved` events of its shuffles come before; the totals are what it had."""

    app: str
    reason: Literal["unregistered", "expired"]
    shuffles: int = field(default=0, compare=False)
    bytes: int = field(default=0, compare=False)


DRAINED = "it was drained"
"""The reason for which a worker is gone that has left after a drain: with it, nothing is lost."""


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker is gone. The `LostOutput` and `OutputMoved` events of its map outputs come after, so that a receiver
    of those can say where it was."""

    worker: WorkerInfo
    reason: str

    @property
    def drained(self) -> bool:
        """Whether it has left after a drain: nothing is lost with it."""
        return self.reason == DRAINED


Event: TypeAlias = MapOutputCommitted | OutputMoved | LostOutput | ShuffleRemoved | AppRemoved | WorkerLost
