"""Which outputs are worth being written a second time, in the order in which they are read.

To find a block takes a disk as long as to read `seek_bytes` (bandwidth divided by reads per second). Compacted outputs
are read with a few seeks for all of them, and cost one more write of their bytes. So a group pays when the blocks in it
that lie together are smaller than `seek_bytes`, and the disk is asked for them at all: when the page cache cannot hold
what the worker holds. Half of the cache counts: it is there for others too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shuffle_server.store import page_cache
from shuffle_server.store.device import MEMORY, Device, recognise
from shuffle_server.store.directory import DataDirectory

COMPACTED_BYTES = 1 << 30  # payload of one compacted file, which is in the page cache while it is made
LEAST_BYTES = 4 << 20  # however little memory there is
CATCH_UP_SECONDS = 0.5
LEAST_SHARE = 1 / 16  # of a disk's bandwidth, for a compacted file that is being written
COMPACTED, LARGE, FAILED = "compacted", "large_blocks", "failed"
DECISIONS = (COMPACTED, LARGE, FAILED)


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """What is compacted.

    :param below: outputs with more payload are not compacted for being small; 0: none are compacted at all.
    :param device: the disks; None: as each is recognised.
    :param page_cache: bytes of it that map outputs may count on; 0: what the system and its limits leave.
    """

    below: int = 0
    device: Device | None = None
    page_cache: int = 0

    def device_of(self, root: Path) -> Device:
        """The disk of a data directory."""
        return MEMORY if not self.below else self.device or recognise(root)


NO_COMPACTION = CompactionOptions()


class CompactionModel:
    """Decides for one store.

    :param committed: the payload bytes that it holds.
    """

    def __init__(self, committed: Callable[[], int], options: CompactionOptions) -> None:
        self._committed, self.options = committed, options
        self._decisions = Counter[str]()
        self.disk_bound = False
        """Whether reads go to the disk, as of the last look."""
        self.group_bytes = self.cached_bytes = 0
        self.look()

    def look(self) -> None:
        """See how much memory there is."""
        available = page_cache.available()
        self.cached_bytes = (self.options.page_cache or available) // 2
        self.disk_bound = self._committed() > self.cached_bytes
        self.group_bytes = min(COMPACTED_BYTES, max(LEAST_BYTES, available // 4))

    def pays(self, device: Device, indexes: Sequence[np.ndarray]) -> bool:
        """Whether outputs with these indexes (dtype INDEX_ROW) are to be compacted."""
        size = sum(int(index["length"].sum()) for index in indexes)
        return size < sum(map(_stretches, indexes)) * device.seek_bytes

    def count(self, decision: str, outputs: int) -> None:
        """So many outputs were decided upon."""
        self._decisions[decision] += outputs

    def decisions(self) -> dict[str, int]:
        """Outputs by decision."""
        return {decision: self._decisions[decision] for decision in DECISIONS}


def _stretches(index: np.ndarray) -> int:
    """The places of an output that have to be found, to read it partition by partition."""
    if not len(index):
        return 0
    partitions, offsets = index["partition"], index["offset"]
    apart = (partitions[1:] != partitions[:-1]) | (offsets[1:] != offsets[:-1] + index["length"][:-1])
    return 1 + int(np.count_nonzero(apart))


def left_over(home: DataDirectory) -> float:
    """Bytes a second that a disk can write beside the map outputs that come in."""
    bandwidth = home.device.bandwidth
    return bandwidth - home.incoming.rate() if home.incoming.count else bandwidth


class WritePace:
    """Holds up what is written again: to a disk's bandwidth where the page cache holds what waits to be compacted, for
    then it is mostly deleted before the disk has it to write. Otherwise to what is left over."""

    def __init__(self, home: DataDirectory, cached: Callable[[], bool]) -> None:
        self._home, self._cached, self._ready = home, cached, time.monotonic()

    def spend(self, size: int) -> None:
        """Wait after so many bytes."""
        bandwidth = self._home.device.bandwidth
        if not bandwidth:
            return
        now = time.monotonic()
        # What was not used for a moment may be made up for.
        self._ready = max(now - CATCH_UP_SECONDS, self._ready)
        rate = bandwidth if self._cached() else max(left_over(self._home), bandwidth * LEAST_SHARE)
        self._ready += size / rate
        if self._ready > now:
            time.sleep(self._ready - now)
