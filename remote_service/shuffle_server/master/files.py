"""The few things that the registry's storage asks of a directory.

A seam: the tests put a directory in its place that crashes between any two of these calls, and forgets what was not
synced. Every call may raise OSError.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from shuffle_server.data_sync import sync_data
from shuffle_transport.files import make_private

Around = Callable[[], AbstractContextManager[None]]


class AppendFile(Protocol):
    """A file that grows at its end."""

    def write(self, data: bytes) -> None:
        """Append all of `data`."""
        ...

    def sync(self) -> None:
        """Return when what was written, and the length, is on the disk."""
        ...

    def truncate(self, size: int) -> None: ...
    def close(self) -> None: ...


class FlatDirectory(Protocol):
    """A flat directory that one process uses."""

    def names(self) -> list[str]: ...
    def open(self, name: str) -> BinaryIO:
        """For reading, buffered."""
        ...

    def create(self, name: str) -> AppendFile:
        """A new, empty file; one of that name is emptied."""
        ...

    def append(self, name: str) -> AppendFile:
        """A file that is there."""
        ...

    def rename(self, old: str, new: str) -> None: ...
    def remove(self, name: str) -> None: ...
    def sync(self) -> None:
        """Return when creations, renames and removals are on the disk."""
        ...

    def describe(self, name: str) -> str:
        """The file's name for people."""
        ...


class LocalFile:
    """An AppendFile of the operating system."""

    def __init__(self, path: Path, flags: int, around: Around = nullcontext) -> None:
        self._around = around
        with around():
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | flags, 0o600)

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            with self._around():
                rest = rest[os.write(self._fd, rest) :]

    def sync(self) -> None:
        with self._around():
            sync_data(self._fd)

    def truncate(self, size: int) -> None:
        with self._around():
            os.ftruncate(self._fd, size)

    def close(self) -> None:
        os.close(self._fd)


class _ReadFile(io.RawIOBase):
    """A file whose reads are each made inside `around`."""

    def __init__(self, file: io.FileIO, around: Around) -> None:
        self._file, self._around = file, around

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any, /) -> int | None:
        with self._around():
            return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class LocalDirectory:
    """A Directory of the operating system; made if it is missing.

    :param around: made for each call to the file system.
    """

    def __init__(self, path: Path, around: Around = nullcontext) -> None:
        self.path, self._around = path, around
        with around():
            make_private(path)

    def names(self) -> list[str]:
        with self._around():
            return sorted(os.listdir(self.path))

    def open(self, name: str) -> BinaryIO:
        with self._around():
            file = open(self.path / name, "rb", buffering=0)  # noqa: SIM115 - the reader closes it
        return io.BufferedReader(_ReadFile(file, self._around), 1 << 20)

    def create(self, name: str) -> AppendFile:
        return LocalFile(self.path / name, os.O_CREAT | os.O_TRUNC, self._around)

    def append(self, name: str) -> AppendFile:
        return LocalFile(self.path / name, 0, self._around)

    def rename(self, old: str, new: str) -> None:
        with self._around():
            os.replace(self.path / old, self.path / new)

    def remove(self, name: str) -> None:
        with self._around():
            os.unlink(self.path / name)

    def sync(self) -> None:
        with self._around():
            fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def describe(self, name: str) -> str:
        return str(self.path / name)
