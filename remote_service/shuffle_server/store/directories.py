"""The data directories of a worker: which one takes the next output, which are out, how to claim them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from shuffle_api.errors import InvalidArgument, StorageFailed, StorageFull
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.private import tighten
from shuffle_transport.files import make_private

MIN_ROOM = 4096  # a directory with less takes no new output


class Directories:
    """Several data directories. A failing or full one takes nothing new, the others go on."""

    def __init__(self, directories: Sequence[DataDirectory]) -> None:
        self._all = tuple(directories)

    def __iter__(self) -> Iterator[DataDirectory]:
        return iter(self._all)

    def choose(self) -> DataDirectory:
        """The directory of a new output: the one with most room per output that is being written.

        Raises StorageFull, StorageFailed (none can be written) naming all of them.
        """
        for directory in self._all:
            directory.refresh()
        best = self._all[0] if len(self._all) == 1 else max(self._all, key=DataDirectory.preference)
        if best.room() >= MIN_ROOM:
            return best
        names = "; ".join(f"{d.root}: {d.out or 'No space left above its floor'}" for d in self._all)
        if all(directory.out for directory in self._all):
            raise StorageFailed(names, remedy="check these disks; they are used again when they can be written")
        raise StorageFull(names, remedy="free space or add a data directory; committed data is unharmed")


def split_directories(text: str) -> list[Path]:
    """The paths of a list `A,B,C`. Raises InvalidArgument when one is empty or named twice."""
    paths = [Path(part.strip()) for part in text.split(",")]
    if not all(part.strip() for part in text.split(",")) or len({path.resolve() for path in paths}) < len(paths):
        raise InvalidArgument(
            f"--data-dir {text!r} names a directory twice, or an empty one",
            remedy="list different directories, commas between them",
        )
    return paths


def lock_directories(roots: Sequence[Path]) -> list[int]:
    """Claim all of them, or none. Raises StorageFailed naming the one that cannot be."""
    claimed: list[int] = []
    try:
        for root in roots:
            claimed.append(lock_directory(root))
    except StorageFailed:
        for fd in claimed:
            os.close(fd)
        raise
    return claimed


def lock_directory(root: Path) -> int:
    """Claim a data directory for this process; the descriptor holds the claim. Raises StorageFailed naming it."""
    try:
        make_private(root)  # map outputs are for their applications only
        fd = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageFailed(
            f"data directory {root}: {error.strerror}",
            remedy="give --data-dir a directory that this user can write to, or leave this one out",
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise StorageFailed(
            f"data directory {root} is in use by another server",
            remedy="stop that server or give --data-dir another directory",
        ) from None
    try:
        tighten(root)
    except BaseException:
        os.close(fd)
        raise
    return fd
