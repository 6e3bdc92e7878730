"""What a writer's queues may take."""

from __future__ import annotations

from dataclasses import dataclass

from shuffle_transport.pool import BufferPool


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
