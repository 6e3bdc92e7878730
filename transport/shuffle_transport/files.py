"""Files: which one it is that a path names, reads that are not cut short, directories for one user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class FileIdentity(NamedTuple):
    """Distinguishes a file from an older one of the same name, also when it was overwritten in place."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileIdentity:
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def read_fully(fd: int, offset: int, target: memoryview) -> int:
    """Fill `target`, of bytes, from `offset`; how many there were: fewer when the file ends. Raises OSError.

    The kernel moves at most 2 GiB at once, and may move less.
    """
    done = 0
    while done < len(target):
        count = os.preadv(fd, [target[done:]], offset + done)
        if not count:
            break
        done += count
    return done


def make_private(path: Path) -> None:
    """Make a directory that only this user may enter, and those above it that are missing.

    For code that may not set the umask of its process. One that exists stays as it is. Raises OSError.
    """
    if path.is_dir():
        return
    make_private(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
