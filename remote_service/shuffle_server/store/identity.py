"""Which worker a data directory belongs to: before a server takes over what lies there, it must be its own.

A start deletes outputs that are not in the registry, so a start with another's directory, or with the registry's own
missing, would delete everything. The first directory holds the worker's name and the list of all, each other one the
name of the worker that it belongs to.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shuffle_api.errors import StorageFailed
from shuffle_server.store.directory import sync_directory

FIRST = "worker-id"  # in the first directory only
FURTHER = "belongs-to"  # in each other one
LIST = "data-directories"  # in the first one: those of the last start


@dataclass(frozen=True, slots=True)
class Marks:
    """What a data directory says of whose it is: its three files, where it really lies, and whether it has outputs."""

    first: str | None
    further: str | None
    listed: tuple[str, ...]
    place: str
    has_outputs: bool


def read_marks(root: Path) -> Marks:
    """Those of a directory. Raises StorageFailed."""
    try:
        return Marks(
            _read(root / FIRST),
            _read(root / FURTHER),
            tuple((_read(root / LIST) or "").splitlines()),
            str(root.resolve()),
            any((root / "worker" / "apps").glob("*")),
        )
    except OSError as error:
        raise _unusable(error) from error


class WorkerIdentity:
    """This worker's name, chosen at the first start: locations in running jobs name it. Thread-safe.

    The first directory is claimed by the constructor, each further one by `claim`, as soon as it answers. All of them
    are locked.
    """

    def __init__(self, first: Path, further: Sequence[Path], marks: Mapping[Path, Marks]) -> None:
        """
        :param marks: of the directories that answer: these are checked before anything is written.
        :raises StorageFailed: a directory is not this worker's, or not what it was at the last start; it is named.
        """
        own = marks[first]
        if own.further is not None:
            remedy = "begin --data-dir with the one that was first"
            raise _refused(first, f"is not the first one of worker {own.further}", remedy)
        self._first, self._further = first, further
        self._listed = own.listed
        self._lock = threading.Lock()
        self._places: dict[Path, str] = {}  # of those that are claimed
        self.worker = own.first or f"w-{uuid.uuid4().hex[:12]}"
        for root in further:
            if root in marks:
                self._check(root, marks[root])
        try:
            if own.first is None:
                _check_empty(first, own)
                replace_text(first / FIRST, self.worker)
            self._write_list()
        except OSError as error:
            raise _unusable(error) from error

    def claim(self, root: Path) -> None:
        """Claim a further one; idempotent. Raises StorageFailed, as the constructor does."""
        marks = read_marks(root)
        self._check(root, marks)
        try:
            if marks.further is None:
                replace_text(root / FURTHER, self.worker)
            with self._lock:
                self._places[root] = marks.place
                self._write_list()
        except OSError as error:
            raise _unusable(error) from error

    def _check(self, root: Path, marks: Marks) -> None:
        if marks.first is not None:
            remedy = "begin --data-dir with it, or empty it"
            raise _refused(root, f"is the first one of worker {marks.first}", remedy)
        if marks.further is None:
            if marks.place in self._listed:
                remedy = "mount its disk; to give its outputs up, start once with a --data-dir that leaves it out"
                raise _refused(root, "is not what it was at the last start", remedy)
            _check_empty(root, marks)
        elif marks.further != self.worker:
            remedy = "begin --data-dir with that worker's first one, or empty this one"
            raise _refused(root, f"belongs to worker {marks.further}", remedy)

    def _write_list(self) -> None:
        """Each directory in it has its file. Until all are claimed, those of the last start stay in it."""
        listed = [self._places[root] for root in self._further if root in self._places]
        if len(listed) < len(self._further):
            listed += [place for place in self._listed if place not in listed]
        if tuple(listed) != self._listed:
            replace_text(self._first / LIST, "\n".join(listed))
            self._listed = tuple(listed)


def _check_empty(root: Path, marks: Marks) -> None:
    if marks.has_outputs:
        remedy = f"begin --data-dir with the one that has the file {FIRST}, or empty this one"
        raise _refused(root, "has map outputs, and no file that names their worker", remedy)


def _read(path: Path) -> str | None:
    """What a file says; None when there is none, or nothing in it. Raises StorageFailed when it is no text."""
    try:
        return path.read_text().strip() or None
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        remedy = f"check this disk; put a good copy of {path.name} there, or empty the directory to begin anew"
        raise _refused(path.parent, f"has a damaged file {path.name} ({error.reason})", remedy) from error


def replace_text(path: Path, text: str) -> None:
    """Write a small file, which is whole or as it was before also after a crash of the machine. Raises OSError."""
    new = path.with_name(path.name + ".new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_directory(path.parent)


def _refused(root: Path, why: str, remedy: str) -> StorageFailed:
    return StorageFailed(f"data directory {root} {why}", remedy=remedy)


def _unusable(error: OSError) -> StorageFailed:
    return StorageFailed(f"data directory {error.filename}: {error.strerror}", remedy="check this disk")
