"""The seam of the transport: one end of a two-way stream of messages, in order, each delivered once.

A channel is what the credit rules run over: a Flight stream, or the in-memory pair of
:mod:`tests.shuffle_transport.loopback`. It knows nothing of blocks or credit. Blocking calls, each with a deadline.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from shuffle_api.buffer import Buffer


@dataclass(frozen=True, slots=True)
class Message:
    """What one call of `send` carries: a control message, payload, or both. Only `payload` costs credit."""

    control: bytes = b""
    payload: Buffer = b""

    @property
    def size(self) -> int:
        """Payload bytes."""
        return memoryview(self.payload).nbytes


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """One end of a channel at one moment."""

    sent_messages: int
    sent_bytes: int  # payload
    received_messages: int
    received_bytes: int  # payload
    queued_messages: int  # sent by this end, not yet received by the other
    queued_bytes: int
    oldest_queued_seconds: float
    stall_seconds: float  # time that calls of send have waited for room


class Channel(ABC):
    """One end. Any number of threads may call; each message is received by one of them."""

    @abstractmethod
    def send(self, message: Message, timeout: float) -> None:
        """Send, waiting up to `timeout` seconds while the channel is full.

        :raises DeadlineExceeded: it stayed full; the message is not sent.
        :raises StreamBroken: either end cancelled, or the connection broke.
        :raises InvalidArgument: this end has half-closed.
        """

    @abstractmethod
    def receive(self, timeout: float) -> Message | None:
        """The next message, or None once the other end has half-closed and all it sent has been received.

        None alone does not mean that the other end said all it had to say: that takes a message with totals.

        :raises DeadlineExceeded: nothing came within `timeout` seconds.
        :raises StreamBroken: either end cancelled, or the connection broke; messages under way are lost.
        """

    @abstractmethod
    def half_close(self) -> None:
        """Nothing more will be sent by this end; it can still receive. Idempotent."""

    @abstractmethod
    def cancel(self, reason: str) -> None:
        """End both directions at once; all waiting calls, of both ends, raise StreamBroken. Idempotent."""

    @abstractmethod
    def statistics(self) -> ChannelStatistics:
        """Counts and queue lengths of this end."""
