"""The few things that the registry's storage asks of a directory.

A seam: the tests put a directory in its place that crashes between any two of these calls, and forgets what was not
synced. Every call may raise OSError.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Protocol

from shuffle_server.data_sync import sync_data
from shuffle_transport.files import make_private


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

    def __init__(self, path: Path, flags: int) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | flags, 0o600)

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def sync(self) -> None:
        sync_data(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def close(self) -> None:
        os.close(self._fd)


class LocalDirectory:
    """A Directory of the operating system; made if it is missing."""

    def __init__(self, path: Path) -> None:
        make_private(path)
        self.path = path

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path))

    def open(self, name: str) -> BinaryIO:
        return open(self.path / name, "rb", buffering=1 << 20)

    def create(self, name: str) -> AppendFile:
        return LocalFile(self.path / name, os.O_CREAT | os.O_TRUNC)

    def append(self, name: str) -> AppendFile:
        return LocalFile(self.path / name, 0)

    def rename(self, old: str, new: str) -> None:
        os.replace(self.path / old, self.path / new)

    def remove(self, name: str) -> None:
        os.unlink(self.path / name)

    def sync(self) -> None:
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def describe(self, name: str) -> str:
        return str(self.path / name)
