"""Room for a writer's queues: how much they may take and have, and how long the writer waits for more."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from shuffle_plugins.pipelined.subpartition import Subpartition
from shuffle_transport.pool import BufferPool

FIRST_RESERVATION = 1 << 20
MIN_LIMIT = 64 << 10
"""Bytes that may wait unsent however slow the readers are."""


@dataclass(frozen=True, slots=True)
class QueueMemory:
    """
    :param pool: where it is reserved, within `timeout` seconds.
    :param limit: bytes unsent from which on writes wait; a block above it passes when nothing else is unsent.
    :param log_limit: bytes sent and not acknowledged that are kept in memory.
    """

    pool: BufferPool
    timeout: float
    limit: int
    log_limit: int


class QueueRoom:
    """One writer's room: a reservation, and what is in the queues. The writer's lock guards it.

    :ivar limit: bytes unsent from which on writes wait: what the readers want, up to `most`.
    :ivar log_limit: bytes sent and not acknowledged that are kept in memory.
    :ivar unsent, log: payload that waits, that was sent and is kept.
    :ivar memory: of both, what is not in files.
    """

    def __init__(self, memory: QueueMemory) -> None:
        self.limit = self.most = memory.limit
        self.log_limit = memory.log_limit
        self.unsent = self.log = self.memory = 0
        self._reservation = memory.pool.reserve(min(FIRST_RESERVATION, memory.limit), memory.timeout)

    @property
    def reserved(self) -> int:
        return self._reservation.size

    def reserve(self, size: int) -> bool:
        """Have memory for `size` bytes more, if the pool gives it without a wait."""
        need, reservation = self.memory + size, self._reservation
        return need <= reservation.size or reservation.try_resize(2 * need) or reservation.try_resize(need)

    def cover(self, size: int) -> bool:
        """Likewise when memory is short: one block passes, whatever its size, if there is nothing else."""
        if self.memory == 0:
            self._reservation.cover(size)
        return self.memory + size <= self._reservation.size

    def count(self, subpartitions: Iterable[Subpartition]) -> None:
        """What is in the queues has changed."""
        unsent = log = memory = 0
        for subpartition in subpartitions:
            unsent += subpartition.unsent_bytes
            log += subpartition.log_bytes
            memory += subpartition.memory_bytes
        self.unsent, self.log, self.memory = unsent, log, memory

    def follow(self, windows: list[int | None]) -> None:
        """These are the readers' windows: more than they want need not wait either."""
        wanted = [window for window in windows if window is not None]
        whole = wanted if wanted and len(wanted) == len(windows) else [self.most]
        self.limit = max(min(self.most, MIN_LIMIT), min(self.most, sum(whole)))

    def give_back(self) -> None:
        """Nothing more comes, and all was read."""
        self._reservation.try_resize(0)

    def close(self) -> None:
        self._reservation.close()


class StallClock:
    """Back-pressure: the time in which a writer waits for room.

    :ivar since: of the wait under way (time.monotonic()); None: there is none.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self._seconds = 0.0

    def begin(self) -> None:
        self.since = time.monotonic()

    def end(self) -> None:
        if self.since is not None:
            self._seconds += time.monotonic() - self.since
        self.since = None

    def seconds(self, now: float) -> float:
        """All waits, with the one under way."""
        return self._seconds + (now - self.since if self.since is not None else 0.0)
