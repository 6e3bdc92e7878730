"""What kind of disk a data directory lies on: how many reads it can do, and how many bytes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from shuffle_api.errors import InvalidArgument

AUTO = "auto"
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "glusterfs", "beegfs", "gpfs", "9p", "afs"})
_MEMORY = frozenset({"tmpfs", "ramfs"})
_MEASURED = re.compile(r"([1-9]\d*):([1-9]\d*)")
_MOUNTS = Path("/proc/self/mountinfo")
_BLOCK_DEVICES = Path("/sys/dev/block")


@dataclass(frozen=True, slots=True)
class Device:
    """A disk as the compaction sees it. `reads` a second, of blocks here and there; `bandwidth` in bytes a second."""

    kind: str
    reads: float
    bandwidth: float

    @property
    def seek_bytes(self) -> int:
        """What it reads in the time of a seek: a smaller block takes longer to find than to read. 0: nothing does."""
        return int(self.bandwidth / self.reads) if self.reads else 0


MEMORY = Device("memory", 0, 0)
KINDS = {
    each.kind: each
    for each in (
        Device("rotational", 150, 150 << 20),
        Device("network", 1_000, 200 << 20),
        Device("solid", 20_000, 500 << 20),
        MEMORY,
    )
}


def parse_device(text: str) -> Device | None:
    """What `--device` says; None: to be recognised. Raises InvalidArgument."""
    if text == AUTO:
        return None
    if text in KINDS:
        return KINDS[text]
    found = _MEASURED.fullmatch(text)
    if found is None:
        raise InvalidArgument(
            f"--device {text!r} is no kind of disk",
            remedy=f"give {AUTO}, {', '.join(KINDS)}, or READS_PER_SECOND:MIB_PER_SECOND, such as 1000:150",
        )
    return Device("measured", int(found[1]), int(found[2]) << 20)


def recognise(directory: Path) -> Device:
    """The disk below a directory, by its file system and the kernel's flag for disks that rotate; solid if neither
    says."""
    number, file_system = _mount(os.path.realpath(directory))
    if file_system in _MEMORY:
        return MEMORY
    if file_system in _NETWORK or file_system.startswith("fuse"):
        return KINDS["network"]
    return KINDS["rotational" if _rotates(number) else "solid"]


def _mount(directory: str) -> tuple[str, str]:
    """Number of the device (major:minor) and type of the file system; empty where the system does not say."""
    best, found = "", ("", "")
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        left, _, right = line.partition(" - ")
        fields = left.split()
        where = fields[4].replace("\\040", " ")
        inside = where == "/" or directory == where or directory.startswith(f"{where}/")
        if inside and len(where) >= len(best):  # of several at one place, the last one is seen
            best, found = where, (fields[2], right.split()[0])
    return found


def _rotates(number: str) -> bool:
    """A partition has no flag of its own, its disk has."""
    for queue in ("queue", "../queue"):
        try:
            return (_BLOCK_DEVICES / number / queue / "rotational").read_text().strip() == "1"
        except OSError:
            continue
    return False
