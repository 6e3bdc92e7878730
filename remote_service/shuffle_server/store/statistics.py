"""A store in numbers, for people and for metrics."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The file system of one data directory. Bytes; all 0 when it does not answer."""

    path: str
    size: int
    used: int  # by whomever
    free: int  # for this process: without what is kept back for root
    out: str = ""  # why nothing new is put there, empty while it is in use


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """A store at one moment. Sizes in bytes."""

    staged_outputs: int  # attempts that are being written
    staged_bytes: int  # payload they hold
    largest_staged: int  # the most attempts that one application writes
    committed_bytes: int  # payload of committed outputs
    merged_bytes: int  # copies of small outputs in compacted files
    rewritten_bytes: int  # payload written into compacted files since the start
    spare_bytes: int  # files of removed outputs, kept to be written over
    index_bytes: int  # indexes of committed outputs in memory
    room_bytes: int  # what new outputs may take, in all directories together
    disks: tuple[DiskSpace, ...]


def disk_space(path: Path, out: str = "") -> DiskSpace:
    """The space there is where `path` lies, a directory that is `out` for some reason, or in use."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return DiskSpace(str(path), 0, 0, 0, out)
    return DiskSpace(str(path), usage.total, usage.used, usage.free, out)
