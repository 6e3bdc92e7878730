"""Files of removed map outputs, kept to be written over by the next outputs of the same application.

To write over a file that lies in the page cache is a copy. A new file needs new pages too, and where a hypervisor has
to find memory for them that costs several times the copy (2.1 s beside 0.07 s for 800 MB). What a
small file saves is its inode: ext4 looks for a free one past all that were freed in the last seconds.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shuffle_transport.files import make_private

LARGE_BYTES = 1 << 20  # from which on a file is kept for its pages
SMALL_BYTES = 64 << 10  # up to which one is kept for its inode
MOST_SMALL = 256


@dataclass(frozen=True, slots=True)
class _PooledFile:
    path: str
    size: int
    since: float


class FilePool:
    """At most `budget` bytes of files below `root`. Thread-safe.

    They are kept by application: one's bytes never lie in another's file. Small ones are for small outputs.
    The contents are gone with the application, with the server, or after a while without use. Whoever reads a committed
    file holds a shared lock on it (flock), so a file that is still being read is never written over.
    """

    def __init__(self, root: Path, budget: int, unlink: Callable[[str], object] = os.unlink) -> None:
        """`unlink` deletes a file, if need be later."""
        self._root, self._budget, self._unlink = root, budget, unlink
        self._lock = threading.Lock()
        self._files: dict[tuple[str, bool], list[_PooledFile]] = {}  # by application, and whether they are small
        self._bytes = self._small = 0
        self._names = itertools.count()

    def begin(self) -> None:
        """Delete what a process before this one has left."""
        shutil.rmtree(self._root, ignore_errors=True)

    @property
    def bytes(self) -> int:
        """Bytes on disk that are given back when they are needed."""
        return self._bytes

    def keep(self, app: str, path: str, size: int) -> bool:
        """Take over the file at `path`, which nobody can open any more; False when it does not fit, or is not worth it.

        Raises OSError.
        """
        small = size <= SMALL_BYTES
        if not small and size < LARGE_BYTES:
            return False
        with self._lock:
            if self._bytes + size > self._budget or (small and self._small >= MOST_SMALL):
                return False
            self._count(size, 1)
        pooled = _PooledFile(f"{self._root}/{app}/{next(self._names)}", size, time.monotonic())
        try:
            self._move(path, pooled.path)
        except OSError:
            with self._lock:
                self._count(size, -1)
            raise
        with self._lock:
            self._files.setdefault((app, small), []).append(pooled)
        return True

    def take(self, app: str, path: str, size: int) -> int | None:
        """Move a pooled file to `path`, for an output that begins with `size` bytes; a descriptor of it, exclusively
        locked, or None when there is none. Raises OSError."""
        while (pooled := self._pop(app, small=size < LARGE_BYTES)) is not None:
            try:
                fd = os.open(pooled.path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # somebody has cleared them away
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.rename(pooled.path, path)
            except BlockingIOError:  # a pull that began before the removal is not over
                os.close(fd)
                self._unlink(pooled.path)
            except OSError:
                os.close(fd)
                self._unlink(pooled.path)
                raise
            else:
                return fd
        return None

    def drop(self, app: str | None = None, *, idle: float = 0.0) -> int:
        """Delete the pooled files (of one application) that have not been used for `idle` seconds; bytes freed."""
        before = time.monotonic() - idle
        dropped: list[_PooledFile] = []
        with self._lock:
            for key in list(self._files):
                if app is not None and key[0] != app:
                    continue
                files = self._files.pop(key)
                dropped += [s for s in files if s.since <= before]
                if kept := [s for s in files if s.since > before]:
                    self._files[key] = kept
            for pooled in dropped:
                self._count(pooled.size, -1)
        for pooled in dropped:
            with suppress(FileNotFoundError):  # somebody has cleared it away
                self._unlink(pooled.path)
        for directory in {os.path.dirname(pooled.path) for pooled in dropped}:
            with suppress(OSError):  # there are others in it
                os.rmdir(directory)
        return sum(pooled.size for pooled in dropped)

    def _move(self, path: str, pooled: str) -> None:
        try:
            os.rename(path, pooled)
        except FileNotFoundError:  # mostly the directory is there
            make_private(Path(pooled).parent)
            os.rename(path, pooled)

    def _pop(self, app: str, *, small: bool) -> _PooledFile | None:
        with self._lock:
            files = self._files.get((app, small))
            if not files:
                return None
            pooled = files.pop()  # the last one: most of it is in the page cache
            self._count(pooled.size, -1)
            return pooled

    def _count(self, size: int, change: int) -> None:
        self._bytes += change * size
        self._small += change * (size <= SMALL_BYTES)
