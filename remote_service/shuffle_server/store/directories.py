"""The data directories of a worker: which one takes the next output, which are out, how to claim them.

Files are for the server's user alone: clients that read them in place run as the same user, or as root.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from shuffle_api.errors import StorageFailed, StorageFull
from shuffle_server.store.directory import DataDirectory
from shuffle_transport.files import make_private

MIN_ROOM = 4096  # a directory with less takes no new output
log = logging.getLogger(__name__)

OTHERS = stat.S_IRWXG | stat.S_IRWXO
OWN = ("worker", "master", "lock", "worker-id", "belongs-to", "data-directories", "incarnation", "journals")
"""What a server has in a data directory."""


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


def keep_private() -> None:
    """For a process of its own: whatever it makes from now on is 0700 or 0600, under whatever umask it was started."""
    os.umask(OTHERS)


def tighten(root: Path) -> None:
    """Take from everybody else what a server has in a data directory, as it may have been left there by a copy or under
    another umask. The directory itself may be somebody else's and keeps its mode.

    Raises StorageFailed naming what stays open.
    """
    mode = root.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        log.warning("every user may write to data directory %s, and replace what is in it: chmod o-w it", root)
    for name in OWN:
        try:
            _tighten(root / name)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageFailed(
                f"{error.filename} is open to other users and cannot be closed to them: {error.strerror}",
                remedy=f"have it belong to the user that the server runs as: chown -R {os.geteuid()} {root / name}",
            ) from error


def _tighten(path: Path) -> None:
    """What lies below a directory that was closed needs no look."""
    if not path.stat().st_mode & OTHERS:
        return
    for each in _below(path):
        mode = each.lstat().st_mode
        if mode & OTHERS and not stat.S_ISLNK(mode):
            each.chmod(stat.S_IMODE(mode) & ~OTHERS)
    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~OTHERS)  # last: until then a start that was cut short begins anew


def _below(path: Path) -> Iterator[Path]:
    for directory, directories, files in os.walk(path):
        yield from (Path(directory, name) for name in (*directories, *files))
