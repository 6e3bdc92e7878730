"""The data directories of a worker: which one takes the next output, which are out, how to claim them.

Files are for the server's user alone: clients that read them in place run as the same user, or as root.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

from shuffle_api.caretaker import Around
from shuffle_api.errors import StorageFailed, StorageFull
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.disk_thread import DiskThread, ask_all
from shuffle_server.store.identity import WorkerIdentity, read_marks
from shuffle_transport.files import make_private

MIN_ROOM = 4096  # a directory with less takes no new output
CLOSE_SECONDS = 2.0  # for which the thread of a directory is waited for

log = logging.getLogger(__name__)

T = TypeVar("T")

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


class Claims:
    """The data directories of a server that starts: each is claimed in its thread, as soon as it answers. Thread-safe.

    Without the first one there is no start: it has the worker's name, and the registry's journal. A further one that
    hangs is claimed when it is back. Call `close` at the end.

    :param limit: seconds after which a call to a file system hangs.
    """

    def __init__(self, roots: Sequence[Path], limit: float) -> None:
        self.disks = [DiskThread(root, limit) for root in roots]
        self._limit = limit
        self._lock = threading.Lock()
        self._locks: dict[Path, int] = {}
        self._closed = False
        self._identity: WorkerIdentity | None = None

    @property
    def first(self) -> DiskThread:
        return self.disks[0]

    def lock(self) -> None:
        """Lock all that answer. Raises StorageFailed: another one cannot be locked, or the first one hangs."""
        for disk in self.disks:
            disk.caretaker.start()
        ask_all(self.disks, "its lock", self._lock_one)

    def identify(self) -> str:
        """The worker's name. Raises StorageFailed: a directory is not this worker's, or the first one hangs."""
        found = ask_all(self.disks, "whose it is", lambda disk: read_marks(disk.root))
        marks = {disk.root: each for disk, each in found.items()}
        first, *further = (disk.root for disk in self.disks)
        self._identity = self.first.do("the worker's name", lambda: WorkerIdentity(first, further, marks))
        return self._identity.worker

    def claim(self, disk: DiskThread) -> None:
        """See to it that a directory is this process's, and this worker's. In its thread. Raises StorageFailed."""
        self._lock_one(disk)
        assert self._identity is not None
        if disk is not self.first:
            self._identity.claim(disk.root)

    def journal(self, make: Callable[[Around], T]) -> T:
        """What `make` returns, which makes each call to the disk of the first directory inside of what it gets.

        :raises StorageFailed: one of them hangs.
        """
        disk = DiskThread(self.first.root, self._limit, nullcontext)  # it computes as well, or waits for a database
        disk.caretaker.start()
        try:
            return disk.do("the registry's journal", lambda: make(disk.calls.own))
        finally:
            disk.stop(0.0)

    def close(self) -> None:
        """Give the directories up. The lock of one that hangs goes with the process."""
        ended = [disk.root for disk in self.disks if disk.stop(CLOSE_SECONDS)]
        with self._lock:
            self._closed = True
            locks = [self._locks.pop(root) for root in ended if root in self._locks]
        for fd in locks:
            os.close(fd)

    def _lock_one(self, disk: DiskThread) -> None:
        with self._lock:
            if disk.root in self._locks:
                return
        fd = lock_directory(disk.root)
        with self._lock:
            if not self._closed:
                self._locks[disk.root] = fd
                return
        os.close(fd)
        raise StorageFailed(f"data directory {disk.root} has answered too late: the server has stopped")


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
            remedy="stop that server or give --data-dir another directory, and none twice",
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
