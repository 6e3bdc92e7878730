"""Everything that can change the registry. No operation holds a time.

Each operation is idempotent: applying it twice in a row gives the same state as once. Those that name what
is gone already (`UnregisterApp`, `UnregisterShuffle`, `LoseWorker`, a stale `LoseMapOutput`) do nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from shuffle_api.ids import MapAttempt, ShuffleId, check_run
from shuffle_api.values import MapOutput, ShuffleSpec, WorkerInfo


@dataclass(frozen=True, slots=True)
class BeginJournal:
    """The journal of this registry gets its id, which is random: no other registry has it. The first one counts."""

    id: str


@dataclass(frozen=True, slots=True)
class RegisterApp:
    """An application run begins. `instance` is random per run and distinguishes a repeated call from another run
    with the same id; `name` is for people. Only workers with the label `only`, if there is one, get its map outputs.

    :raises InvalidArgument: when made: the application id is not valid.
    """

    app: str
    instance: str
    name: str
    only: str = ""

    def __post_init__(self) -> None:
        check_run(self.app)


@dataclass(frozen=True, slots=True)
class UnregisterApp:
    """The application run is over: all its shuffles go, its id is free again."""

    app: str


@dataclass(frozen=True, slots=True)
class ExpireApps:
    """These applications were silent for too long: their shuffles go, their ids are remembered."""

    apps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RegisterShuffle:
    """A shuffle begins. Its id has a generation that no other registration of its number has had; repeated while one
    is registered, the first one counts.
    """

    spec: ShuffleSpec


@dataclass(frozen=True, slots=True)
class UnregisterShuffle:
    """A shuffle is over: its data may go."""

    id: ShuffleId


@dataclass(frozen=True, slots=True)
class CommitMapOutput:
    """A worker holds a complete map output: the first attempt of its map wins. The same attempt at another worker is a
    copy. `output` names one worker.
    """

    shuffle: ShuffleId
    output: MapOutput


@dataclass(frozen=True, slots=True)
class LoseMapOutput:
    """The data of a committed attempt is gone, at `worker` or (empty) everywhere; `reason` is shown to whoever wants to
    read it. An output of which another worker has a copy is not lost.
    """

    shuffle: ShuffleId
    output: MapAttempt
    reason: str
    worker: str = ""


@dataclass(frozen=True, slots=True)
class LoseWorkerOutputs:
    """What a worker holds of the maps [first, end) of a shuffle is gone there: a step of its loss, should it hold much.
    As `LoseMapOutput` of each.
    """

    shuffle: ShuffleId
    worker: str
    reason: str
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class RegisterWorker:
    """A worker is there, or back, or at another address, or has other free space than before."""

    info: WorkerInfo


@dataclass(frozen=True, slots=True)
class LoseWorker:
    """A worker is gone for good, with all map outputs that lay there."""

    worker: str
    reason: str


Operation: TypeAlias = (
    BeginJournal
    | RegisterApp
    | UnregisterApp
    | ExpireApps
    | RegisterShuffle
    | UnregisterShuffle
    | CommitMapOutput
    | LoseMapOutput
    | LoseWorkerOutputs
    | RegisterWorker
    | LoseWorker
)
