"""Which file it is that a path names."""

from __future__ import annotations

import os
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
