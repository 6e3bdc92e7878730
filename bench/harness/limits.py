"""Less of a disk and of page cache than the machine has, for some processes. Needs root."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from bench.harness import process

GROUPS = Path("/sys/fs/cgroup")
NAME = "flight-shuffle-bench"
OWN_GROWTH = 300 << 20  # that the processes may take beside what they have, and the page cache


class Limits:
    """Control groups (version 1) of some processes. Made with no limits; `remove` lifts them again."""

    def __init__(self, pid: int, folder: Path) -> None:
        """``folder`` is on the disk that is limited. Raises OSError: no such control groups, or no right to one."""
        self._pids: list[int] = []
        device = folder.stat().st_dev
        self._disk = f"{os.major(device)}:{os.minor(device)}"
        self._io, self._memory = (GROUPS / kind / f"{NAME}-{pid}" for kind in ("blkio", "memory"))
        for group in (self._io, self._memory):
            group.mkdir(exist_ok=True)
        self.add(pid)

    def add(self, pid: int) -> None:
        """Another process, before limits are set."""
        self._pids.append(pid)
        for group in (self._io, self._memory):
            (group / "cgroup.procs").write_text(str(pid))

    def reads(self, count: int, size: int) -> None:
        """So many reads and bytes a second, of all together."""
        for name, value in (("iops", count), ("bps", size)):
            (self._io / f"blkio.throttle.read_{name}_device").write_text(f"{self._disk} {value}")

    def writes(self, size: int) -> None:
        """So many bytes a second, of the whole machine to this disk: it is the kernel that writes. 0: no limit."""
        (GROUPS / "blkio" / "blkio.throttle.write_bps_device").write_text(f"{self._disk} {size}")

    def page_cache(self, size: int) -> None:
        """So many bytes of page cache, of all together, beside the memory that they have now and `OWN_GROWTH`."""
        own = sum(process.figure(pid, "status", "RssAnon") << 10 for pid in self._pids)
        (self._memory / "memory.limit_in_bytes").write_text(str(own + OWN_GROWTH + size))

    def counted(self, name: str) -> int:
        """What they have read: io_serviced or io_service_bytes."""
        lines = (self._io / f"blkio.throttle.{name}").read_text().splitlines()
        return sum(int(line.split()[2]) for line in lines if line.startswith(f"{self._disk} Read"))

    def remove(self) -> None:
        """The processes that have not ended are outside again."""
        self.writes(0)
        for group in (self._io, self._memory):
            for pid in (group / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    (group.parent / "cgroup.procs").write_text(pid)
            group.rmdir()
