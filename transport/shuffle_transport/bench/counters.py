"""What the peer counts while streams run: payload bytes taken in per channel, and who stands still."""

from __future__ import annotations

import threading

from shuffle_transport.bench.job import Job

PAUSE_S = 0.005
RELEASE_TIMEOUT_S = 120.0


class Counters:
    """Each channel's bytes are written by the one thread that serves it."""

    def __init__(self) -> None:
        self.received: dict[int, int] = {}
        self._released = threading.Event()

    def took(self, job: Job, size: int) -> None:
        """A message of `size` bytes came. Returns when its consumer asks for the next: at once, or as the job says.

        Those who stand still do so until they are released (or nobody has done so for two minutes).
        """
        self.received[job.channel] = self.received.get(job.channel, 0) + size
        if job.work == "stall":
            self._released.wait(RELEASE_TIMEOUT_S)
        elif job.work == "slow":
            self._released.wait(PAUSE_S)

    def release(self) -> None:
        """Those who stand still go on."""
        self._released.set()

    def reset(self) -> None:
        """Count from zero; from now on consumers can stand still again."""
        self.received = {}
        self._released = threading.Event()
