"""A store in numbers, for people and for metrics."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shuffle_api.ids import ShuffleId


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The file system of one data directory. Bytes; all 0 when it does not answer."""

    path: str
    size: int
    used: int  # by whomever
    free: int  # for this process: without what is kept back for root
    out: str = ""  # why nothing new is put there, empty while it is in use
    seek_bytes: int = 0  # what the disk reads in the time of a seek
    device: str = ""


@dataclass(frozen=True, slots=True)
class ShuffleCompaction:
    """What was decided about one shuffle."""

    shuffle: ShuffleId
    decisions: Mapping[str, int]  # outputs by decision
    pending: int  # payload that waits


@dataclass(frozen=True, slots=True)
class CompactionStatistics:
    """Of the compacted files of a store, and of what may become one. Sizes in bytes."""

    bytes: int  # compacted files
    rewritten: int  # payload written into compacted files since the start
    pending: int  # payload with blocks small for its disk, which is not compacted yet
    disk_bound: bool  # whether the page cache cannot hold what is held here
    decisions: Mapping[str, int]  # outputs by what was decided about them
    shuffles: tuple[ShuffleCompaction, ...] = ()  # those with most bytes


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """A store at one moment. Sizes in bytes."""

    staged_outputs: int  # attempts that are being written
    staged_bytes: int  # payload they hold
    largest_staged: int  # the most attempts that one application writes
    committed_bytes: int  # payload of committed outputs
    compaction: CompactionStatistics
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
