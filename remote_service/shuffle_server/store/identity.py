"""Which worker a data directory belongs to: before a server takes over what lies there, it must be its own.

A start deletes outputs that are not in the registry, so a start with another's directory, or with the registry's own
missing, would delete everything. The first directory holds the worker's name and the list of all, each other one the
name of the worker that it belongs to.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path

from shuffle_api.errors import StorageFailed
from shuffle_server.store.directory import sync_directory

FIRST = "worker-id"  # in the first directory only
FURTHER = "belongs-to"  # in each other one
LIST = "data-directories"  # in the first one: those of the last start


def claim_identity(roots: Sequence[Path]) -> str:
    """This worker's name, chosen at the first start: locations in running jobs name it. The directories are locked.

    Raises StorageFailed naming the directory that is not this worker's, or that is not what it was at the last start.
    """
    try:
        return _claim(roots)
    except OSError as error:
        raise StorageFailed(f"data directory {error.filename}: {error.strerror}", remedy="check this disk") from error


def _claim(roots: Sequence[Path]) -> str:
    first, further = roots[0], roots[1:]
    if (owner := _read(first / FURTHER)) is not None:
        raise _refused(first, f"is not the first one of worker {owner}", "begin --data-dir with the one that was first")
    own = _read(first / FIRST)
    known = (_read(first / LIST) or "").splitlines()
    for root in further:
        if (other := _read(root / FIRST)) is not None:
            raise _refused(root, f"is the first one of worker {other}", "begin --data-dir with it, or empty it")
        owner = _read(root / FURTHER)
        if owner is not None and owner != own:
            remedy = "begin --data-dir with that worker's first one, or empty this one"
            raise _refused(root, f"belongs to worker {owner}", remedy)
        if owner is None and str(root.resolve()) in known:
            remedy = "mount its disk; to give its outputs up, start once with a --data-dir that leaves it out"
            raise _refused(root, "is not what it was at the last start", remedy)
    if own is None:
        for root in roots:
            if any((root / "worker" / "apps").glob("*")):
                remedy = f"begin --data-dir with the one that has the file {FIRST}, or empty this one"
                raise _refused(root, f"has map outputs, and {first} names no worker", remedy)
        own = f"w-{uuid.uuid4().hex[:12]}"
        replace_text(first / FIRST, own)
    for root in further:
        if _read(root / FURTHER) is None:
            replace_text(root / FURTHER, own)
    # Last: each directory in the list has its file.
    if (listed := [str(root.resolve()) for root in further]) != known:
        replace_text(first / LIST, "\n".join(listed))
    return own


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
