"""Blocks of a committed map output in the worker's file, mapped into memory.

Three things keep what was mapped as it is, for as long as anything refers to it:

1. A shared lock (flock) on the file, which the mapping keeps: the worker writes over no file that is locked so (see
   `store/spares.py` there). Once it is held, the path is looked at: if it still names this file, the file is that of a
   committed output, and what happens to its name later (it moves, is removed, goes to the object store) takes nothing
   away.
2. The pages are there before they are looked at (MADV_POPULATE_READ): a disk that fails, or a file that somebody cut,
   is an error then, and not the end of the process.
3. A bound on how many files are mapped at once, since each takes a descriptor. What is above is read into memory.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
import stat
import weakref
from typing import Final

from shuffle_transport.file_identity import FileIdentity
from shuffle_transport.read_fully import read_fully

MAP_FROM: Final = 64 << 10  # what is less is read: a mapping costs two system calls and a fault for every few pages
MOST_FILES: Final = 1024
_POPULATE_READ: Final = 22  # MADV_POPULATE_READ, Linux 5.14


_mapped: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
_can_populate = hasattr(mmap.mmap, "madvise")  # until the kernel says otherwise


def mapped_files() -> int:
    """How many files this process has mapped."""
    return len(_mapped)


def check_file(path: str, status: os.stat_result, file: FileIdentity) -> None:
    """:raises OSError: what was found at `path` is another file."""
    if FileIdentity.of(status) != file:
        raise OSError(errno.ESTALE, "it was replaced", path)


class OutputBlocks:
    """Ranges of one committed file. The views that it hands out outlive it. A context manager."""

    def __init__(self, path: str, total: int, end: int, file: FileIdentity | None = None) -> None:
        """
        :param total: bytes that will be asked for.
        :param end: where the last of them ends in the file.
        :param file: which one it must be.
        :raises OSError: the path does not name a whole committed file (any more), or it cannot be opened now.
        """
        self._map: mmap.mmap | None = None
        self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            status = os.fstat(self._fd)
            named = os.stat(path, follow_symlinks=False)
            self.file = FileIdentity.of(status)
            check_file(path, named, self.file)
            if file is not None:
                check_file(path, status, file)
            if not stat.S_ISREG(status.st_mode) or status.st_size < end:
                raise OSError(errno.EINVAL, f"it has {status.st_size} bytes, not {end}", path)
            if total >= MAP_FROM and _may_map():
                self._map = _map(self._fd, end)
        except BaseException:
            os.close(self._fd)
            raise

    def view(self, offset: int, length: int) -> memoryview:
        """The bytes from `offset` on: of the mapping, or read. Raises OSError."""
        if self._map is not None and length:
            try:
                start = offset - offset % mmap.PAGESIZE
                self._map.madvise(_POPULATE_READ, start, offset + length - start)
                return memoryview(self._map)[offset : offset + length]
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                _populates_not()
                self._map = None
        return self._read(offset, length)

    def _read(self, offset: int, length: int) -> memoryview:
        target = memoryview(bytearray(length))
        done = read_fully(self._fd, offset, target)
        if done < length:
            raise OSError(errno.EINVAL, f"it ends at {offset + done}")
        return target.toreadonly()

    def __enter__(self) -> OutputBlocks:
        return self

    def __exit__(self, *exception: object) -> None:
        self._map = None  # unmapped when the last view of it is gone
        os.close(self._fd)


def _may_map() -> bool:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if soft == resource.RLIM_INFINITY else min(MOST_FILES, soft // 4)
    return _can_populate and len(_mapped) < most


def _populates_not() -> None:
    global _can_populate
    _can_populate = False


def _map(fd: int, end: int) -> mmap.mmap | None:
    """The file as far as `end`; None when it cannot be mapped, which is no error: then it is read."""
    try:
        mapping = mmap.mmap(fd, end, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
    _mapped.add(mapping)
    return mapping
