"""The kernel's page cache: its size, and reading ahead."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_LIMITS = (  # of a control group, as a container sees its own: the limit, statistics, the name of what is no cache
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.stat"), "anon"),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.stat"),
        "total_rss",
    ),
)
_ADVISES = hasattr(os, "posix_fadvise")  # macOS has no such call


def available() -> int:
    """Bytes that file pages may take, as the system and the limits of this process's container leave them."""
    room = _system()
    for limit, statistics, name in _LIMITS:
        with suppress(OSError, ValueError):  # there is no such limit
            room = min(room, int(limit.read_text()) - _figure(statistics, name))
    return max(0, room)


def _system() -> int:
    try:
        return _figure(_MEMINFO, "MemAvailable:") << 10
    except (OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _figure(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        fields = line.split()
        if fields and fields[0] == name:
            return int(fields[1])
    raise ValueError(f"{path} has no {name}")


def read_exactly(fd: int) -> None:
    """Reads of this file are of what is wanted: nothing behind it is read ahead."""
    if _ADVISES:
        with suppress(OSError):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)


def read_ahead(fd: int, offset: int, length: int) -> None:
    """This range is going to be read: the disk can begin."""
    if _ADVISES:
        with suppress(OSError):
            os.posix_fadvise(fd, offset, length, os.POSIX_FADV_WILLNEED)
