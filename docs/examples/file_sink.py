"""A sink whose transactions are files: in progress, pending, finished, as those of Flink's FileSink."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from exactly_once import sync_directory


class FileSink:
    """Writes `DIRECTORY/part-SINK-CHECKPOINT`, a record per line. A file of this name is whole and final.

    :param attempt: of the task.
    """

    def __init__(self, directory: Path, sink: int, attempt: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._name = directory, f"part-{sink}-"
        self._in_progress = directory / f".{self._name}in-progress"
        self._file: BinaryIO | None = None
        self._lock = (directory / f".{self._name}lock").open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # an earlier attempt that was not killed yet would write the same files

    def write(self, records: Sequence[bytes]) -> None:
        if self._file is None:
            self._file = self._in_progress.open("wb")
        self._file.writelines(record + b"\n" for record in records)

    def prepare(self, checkpoint: int) -> None:
        if self._file is None:
            return  # no records since the last barrier
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None
        self._in_progress.replace(self._pending(checkpoint))
        sync_directory(self._directory)

    def commit(self, checkpoint: int) -> None:
        pending = self._pending(checkpoint)
        if pending.exists():  # else it was committed before
            pending.replace(self._directory / f"{self._name}{checkpoint}")
        sync_directory(self._directory)

    def recover(self, checkpoint: int) -> None:
        self._in_progress.unlink(missing_ok=True)
        for path in list(self._directory.glob(f".{self._name}*.pending")):
            prepared = int(path.stem.rpartition("-")[2])
            if prepared <= checkpoint:
                self.commit(prepared)
            else:
                path.unlink()  # its records come again

    def _pending(self, checkpoint: int) -> Path:
        return self._directory / f".{self._name}{checkpoint}.pending"


def records_in(directory: Path) -> list[bytes]:
    """What a reader of the directory finds."""
    return [line for path in sorted(directory.glob("part-*")) for line in path.read_bytes().splitlines()]
