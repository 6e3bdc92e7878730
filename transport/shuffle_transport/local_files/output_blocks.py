"""Blocks of a committed map output, read from the worker's file into memory of this process.

They are read, not mapped: of a file that is cut, or a disk that fails, a read is an error, where a mapping ends the
process with a signal, at any later time too. Verified blocks stay as they are.

While it reads, a client holds a shared lock (flock): a worker writes over no file that is locked so
(`store/file_pool.py`). Once it holds the lock, the client looks at the path: if that still names this file, the file is
that of a committed output.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

import numpy as np

from shuffle_transport.file_identity import FileIdentity
from shuffle_transport.read_fully import read_fully


def check_file(path: str, status: os.stat_result, file: FileIdentity) -> None:
    """:raises OSError: what was found at `path` is another file."""
    if FileIdentity.of(status) != file:
        raise OSError(errno.ESTALE, "it was replaced", path)


class OutputBlocks:
    """Ranges of one committed file. A context manager."""

    def __init__(self, path: str, end: int, file: FileIdentity | None = None) -> None:
        """
        :param end: where the last of them ends in the file.
        :param file: which one it must be.
        :raises OSError: the path does not name a whole committed file (any more), or it cannot be opened now.
        """
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
        except BaseException:
            os.close(self._fd)
            raise

    def read(self, offset: int, length: int) -> memoryview:
        """A copy of the bytes from `offset` on. Raises OSError."""
        target = np.empty(length, np.uint8).data  # as bytearray, but not zeroed first
        done = read_fully(self._fd, offset, target)
        if done < length:
            raise OSError(errno.EINVAL, f"it ends at {offset + done}")
        return target.toreadonly()

    def __enter__(self) -> OutputBlocks:
        return self

    def close(self) -> None:
        """Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def __exit__(self, *exception: object) -> None:
        self.close()
