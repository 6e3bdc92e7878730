"""What a channel, a client and an endpoint say about themselves. Sizes in bytes, times in seconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Self


@dataclass(frozen=True, slots=True)
class BlockChannelStatistics:
    """One end of a channel at one moment.

    Credit counts payload, table and a kilobyte for each message; `bytes` are payload as it travels, `raw_bytes` the
    same before compression.
    """

    # what this end sends
    credit_granted: int  # by the other end, cumulative
    credit_available: int  # left; below zero after a batch larger than the window
    backlog: int  # credit that waits to be sent
    bytes_in_flight: int  # credit spent that the other end has not given back
    stall_seconds: float  # waits for credit, summed
    oldest_wait_seconds: float  # how long the one that waits longest has waited
    blocks_sent: int
    bytes_sent: int
    raw_bytes_sent: int
    messages_sent: int  # batches, control messages, the end
    messages_unacknowledged: int  # kept to be sent again; always 0 without `resume`
    # what it receives
    granted: int  # credit given to the other end, cumulative
    granted_available: int  # of that, not spent yet
    held: int  # credit received and not given back
    announced_backlog: int  # what the other end said last
    queue_age_seconds: float  # how long the oldest item has waited to be received
    blocks_received: int
    bytes_received: int
    raw_bytes_received: int
    messages_received: int

    @classmethod
    def none(cls) -> Self:
        """All zero."""
        return cls(*(0 for _ in fields(cls)))

    def plus(self, other: Self) -> Self:
        """Sums, and the larger of ages."""
        names = (field.name for field in fields(self))
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in names)
        return type(self)(*(max(a, b) if name in _AGES else a + b for name, a, b in pairs))


_AGES = frozenset({"oldest_wait_seconds", "queue_age_seconds"})


@dataclass(frozen=True, slots=True)
class ExchangeStatistics:
    """All channels of a client or an endpoint at one moment."""

    channels: int  # open ones
    opened: int  # so far
    resumed: int  # streams that took up a channel again, so far
    sums: BlockChannelStatistics  # of the open ones

    @classmethod
    def of(cls, channels: Iterable[BlockChannelStatistics], opened: int, resumed: int) -> Self:
        count, sums = 0, BlockChannelStatistics.none()
        for channel in channels:
            count, sums = count + 1, sums.plus(channel)
        return cls(count, opened, resumed, sums)
