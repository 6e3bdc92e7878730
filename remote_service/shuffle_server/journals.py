"""In which journal the outputs of a worker are recorded. A master with another one is not its own.

The registry of a master that starts on an empty directory, because a disk is not mounted, has no output; that of a
master which starts on an old copy lacks the last ones. A worker that joins either deletes what jobs still read. So a
worker keeps the id of the journal that it has joined, and its last epoch, and joins no other one while it has outputs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shuffle_api.errors import ShuttingDown, StorageFailed
from shuffle_server.store.identity import replace_text


class OtherJournal(ShuttingDown):
    """The master has another journal than that of the worker's outputs. Until the right one is there, it is away."""


@dataclass(frozen=True, slots=True)
class Journal:
    """A journal in one of its epochs. Without an `id`: which one is open."""

    id: str = ""
    epoch: int = 0

    def follows(self, known: Journal) -> bool:
        """Whether this is the known journal, now or later, as far as both have an id."""
        return not (self.id and known.id) or (self.id == known.id and self.epoch >= known.epoch)

    def __str__(self) -> str:
        return f"journal {self.id} in epoch {self.epoch}"


class Journals:
    """Those that a worker has joined, by the names of their registries, in a file. Thread-safe.

    The file has a line for each: id, epoch, name.

    :param later: has a task done where a disk that hangs holds up nobody.
    :raises StorageFailed: the file cannot be read.
    """

    def __init__(self, file: Path, later: Callable[[Callable[[], object]], object]) -> None:
        self._file, self._later = file, later
        self._lock = threading.Lock()
        self._known: dict[str, Journal] = {}
        try:
            for line in file.read_text().splitlines() if file.exists() else ():
                id, epoch, *name = line.split()
                self._known["".join(name)] = Journal(id, int(epoch))
        except ValueError as error:
            remedy = "check the disk; make sure that the masters have the right journals, then remove the file"
            raise StorageFailed(f"{file} has a line that is not ID EPOCH NAME", remedy=remedy) from error
        except OSError as error:
            raise StorageFailed(f"{file}: {error.strerror}", remedy="check the disk") from error

    def of(self, registry: str) -> Journal:
        """The journal of a registry; one without an id before the first join."""
        with self._lock:
            return self._known.get(registry, Journal())

    def joined(self, registry: str, journal: Journal, held: Journal, master: str) -> None:
        """The `master` of the registry has this journal, which is kept from now on.

        :param held: that of the outputs here.
        :raises OtherJournal: it is another one.
        """
        if not journal.follows(held):
            raise OtherJournal(
                f"the master {master} has {journal}, and the map outputs of this worker are of {held}",
                remedy="start the master with the --data-dir or --metadata that it had; to give these outputs up"
                f" instead, stop this worker, remove {self._file}, and start it again",
            )
        with self._lock:
            if not journal.id or journal == self._known.get(registry):
                return
            self._known[registry] = journal
        self._later(self._write)

    def _write(self) -> None:
        with self._lock:
            text = "".join(f"{each.id} {each.epoch} {name}\n" for name, each in sorted(self._known.items()))
        replace_text(self._file, text)
