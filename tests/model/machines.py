"""The workers' machines: the work of their disks and networks, done and waiting. One array of each figure."""

from __future__ import annotations

import numpy as np

from shuffle_server.store.device import Device
from tests.model.parameters import MIB, Parameters

BACKGROUND_SHARE = 0.5  # of a disk, for what is written, while reads wait for it
DIRTY_SHARE = 0.2  # of the page cache: a writer with more unwritten bytes waits for the disk
WRITE_BACK_SECONDS = 30.0  # after which the kernel writes what was not deleted before


class Machines:
    """Of all workers, by number. Times are in seconds, counts and bytes since the start."""

    def __init__(self, parameters: Parameters, device: Device) -> None:
        count = parameters.workers
        self.device = device
        self.cache = parameters.page_cache * MIB
        self.network = parameters.network * MIB  # bytes per second
        self.speed = np.ones(count)
        self.up = np.ones(count, bool)
        self.backlog = np.zeros(count)  # seconds of work for the disk that wait
        self.held = np.zeros(count)  # bytes of map outputs
        self.reads = np.zeros(count)
        self.read_bytes = np.zeros(count)
        self.written_bytes = np.zeros(count)
        self.pushed_bytes = np.zeros(count)
        self.pulled_bytes = np.zeros(count)
        self.pulls = np.zeros(count)
        self.disk_seconds = np.zeros(count)
        self.open_pushes = np.zeros(count, int)

    def missed(self) -> np.ndarray:
        """The share of reads that the page cache does not answer: they come in no order, so it holds any part."""
        return 1 - np.minimum(1, self.cache / np.maximum(self.held, 1))

    def read_seconds(self, reads: float, size: float) -> float:
        """Of a disk, for so many reads with so many bytes."""
        if not self.device.bandwidth:
            return 0.0
        return reads / self.device.reads + size / self.device.bandwidth

    def read(self, worker: int, reads: float, size: float) -> None:
        """A worker reads in the background."""
        self.reads[worker] += reads
        self.read_bytes[worker] += size
        self.backlog[worker] += self.read_seconds(reads, size)

    def write(self, worker: int, size: float) -> None:
        """The kernel of a machine writes to the disk."""
        self.written_bytes[worker] += size
        self.backlog[worker] += self.read_seconds(0, size)

    def push_seconds(self, worker: int, size: int) -> float:
        """How long a push takes that begins now: it shares the worker's network with those that are open, and its disk
        when that is far behind."""
        rate = self.network / max(1, self.open_pushes[worker])
        bandwidth = self.device.bandwidth
        if bandwidth and self.backlog[worker] * bandwidth > DIRTY_SHARE * self.cache:
            rate = min(rate, bandwidth / max(1, self.open_pushes[worker]))
        return float(size / (rate * self.speed[worker]))

    def pass_time(self, seconds: float, reading: np.ndarray) -> np.ndarray:
        """Have disks work off what waits; the seconds that each has for reads then. `reading`: reads wait there."""
        share = np.where(reading, BACKGROUND_SHARE, 1.0) * seconds
        done = np.where(self.up, np.minimum(self.backlog, share * self.speed), 0)
        self.backlog -= done
        self.disk_seconds += done / self.speed
        return np.where(self.up, seconds - done / self.speed, 0)
