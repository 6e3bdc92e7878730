"""Where a worker's files lie. Names are built from validated ids only, never from what a peer sent as text.

DATA_DIR/lock                                  held by the running server
DATA_DIR/worker/apps/RUN/SHUFFLE.GENERATION/MAP.ATTEMPT.out       a committed map output
DATA_DIR/worker/apps/RUN/SHUFFLE.GENERATION/MAP.ATTEMPT.NUMBER.partial   one that is being written
DATA_DIR/worker/apps/RUN/SHUFFLE.GENERATION/NUMBER.compacted      several committed map outputs
DATA_DIR/worker/apps/RUN/SHUFFLE.GENERATION/MAP.ATTEMPT.away      stub of one that is in the object store too
DATA_DIR/worker/trash/                         removed, being deleted in the background
DATA_DIR/worker/spares/RUN/                    removed, kept to be written over
DATA_DIR/master/                               the registry's journal
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import MapAttempt, ShuffleId

APPS = "apps"
COMMITTED = ".out"
PARTIAL = ".partial"
AWAY = ".away"
COMPACTED = ".compacted"


def folder_of(shuffle: ShuffleId) -> str:
    """The folder of a shuffle within that of its run."""
    return f"{shuffle.shuffle}.{shuffle.generation}"


def shuffle_of(run: str, folder: str) -> ShuffleId | None:
    """The shuffle whose folder lies in that of `run`; None for one that no shuffle has."""
    numbers = folder.split(".")
    try:
        return ShuffleId(run, int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else None
    except (InvalidArgument, ValueError):
        return None


def attempt_of(name: str) -> MapAttempt:
    """The attempt whose file has this name. Raises ValueError."""
    map_id, attempt, *_ = name.split(".")
    return MapAttempt(int(map_id), int(attempt))


@dataclass(frozen=True, slots=True)
class StorePaths:
    """Paths below one data directory."""

    root: Path

    @property
    def apps(self) -> Path:
        return self.root / APPS

    @property
    def trash(self) -> Path:
        return self.root / "trash"

    @property
    def file_pool(self) -> Path:
        return self.root / "spares"

    # Each from one text: to join a Path four times takes longer than most of what is done with it.

    def app(self, app: str) -> Path:
        return Path(self.app_text(app))

    def shuffle(self, shuffle: ShuffleId) -> Path:
        return Path(self.shuffle_text(shuffle))

    def committed(self, shuffle: ShuffleId, output: MapAttempt) -> Path:
        return Path(self.committed_text(shuffle, output))

    # As text: a Path takes longer to make than the file takes to open, and a pull opens many.

    def committed_text(self, shuffle: ShuffleId, output: MapAttempt) -> str:
        return f"{self.shuffle_text(shuffle)}/{output.map}.{output.attempt}{COMMITTED}"

    def partial_text(self, shuffle: ShuffleId, output: MapAttempt, number: int) -> str:
        return f"{self.shuffle_text(shuffle)}/{output.map}.{output.attempt}.{number}{PARTIAL}"

    def compacted_text(self, shuffle: ShuffleId, name: str) -> str:
        return f"{self.shuffle_text(shuffle)}/{name}{COMPACTED}"

    def shuffle_text(self, shuffle: ShuffleId) -> str:
        return f"{self.app_text(shuffle.app)}/{folder_of(shuffle)}"

    def app_text(self, app: str) -> str:
        return f"{self.root}/{APPS}/{app}"
