"""Channels within a process: the transport for tests and for a producer and a consumer that share one.

Behaves like a stream over a connection: ordered, bounded (a send waits while the other end does not
receive), and broken for both ends at once. Faults are added by :mod:`tests.shuffle_transport.faults`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

from shuffle_api.errors import DeadlineExceeded, InvalidArgument, StreamBroken
from tests.shuffle_transport.channel import Channel, ChannelStatistics, Message

DEFAULT_CAPACITY = 64
"""Messages under way in one direction before `send` waits."""


def loopback(name: str = "loopback", *, capacity: int = DEFAULT_CAPACITY) -> tuple[Channel, Channel]:
    """The two ends of a new channel.

    :param name: for error messages.
    :param capacity: most messages under way in each direction.
    :raises InvalidArgument: `capacity` is below 1.
    """
    if capacity < 1:
        raise InvalidArgument(f"a channel for {capacity} messages", remedy="give a capacity of at least 1")
    link = _Link(name, capacity)
    there, back = _Direction(), _Direction()
    return _LoopbackChannel(link, there, back), _LoopbackChannel(link, back, there)


@dataclass(slots=True)
class _Direction:
    queue: deque[tuple[Message, float]] = field(default_factory=deque)
    half_closed: bool = False
    sent_messages: int = 0
    sent_bytes: int = 0
    received_messages: int = 0
    received_bytes: int = 0
    stalled: float = 0.0


class _Link:
    """What both ends share. One condition: the channel is one object that people wait on."""

    def __init__(self, name: str, capacity: int) -> None:
        self.name, self.capacity = name, capacity
        self.changed = threading.Condition()
        self.broken: str | None = None

    def check(self) -> None:
        if self.broken is not None:
            raise StreamBroken(f"{self.name} is broken: {self.broken}")


class _LoopbackChannel(Channel):
    def __init__(self, link: _Link, out: _Direction, into: _Direction) -> None:
        self._link, self._out, self._in = link, out, into

    def send(self, message: Message, timeout: float) -> None:
        link, out, start = self._link, self._out, time.monotonic()
        with link.changed:
            room = link.changed.wait_for(
                lambda: link.broken is not None or out.half_closed or len(out.queue) < link.capacity, timeout
            )
            out.stalled += time.monotonic() - start
            link.check()
            if out.half_closed:
                raise InvalidArgument(f"{link.name}: sending after half_close", remedy="half-close after the last send")
            if not room:
                raise DeadlineExceeded(
                    f"{link.name}: the other end received none of {len(out.queue)} waiting messages "
                    f"within {timeout:g} s"
                )
            out.queue.append((message, time.monotonic()))
            out.sent_messages += 1
            out.sent_bytes += message.size
            link.changed.notify_all()

    def receive(self, timeout: float) -> Message | None:
        link, into = self._link, self._in
        with link.changed:
            came = link.changed.wait_for(lambda: link.broken is not None or into.queue or into.half_closed, timeout)
            link.check()
            if into.queue:
                message, _ = into.queue.popleft()
                into.received_messages += 1
                into.received_bytes += message.size
                link.changed.notify_all()
                return message
            if came:
                return None
            raise DeadlineExceeded(f"{link.name}: no message came within {timeout:g} s")

    def half_close(self) -> None:
        with self._link.changed:
            self._out.half_closed = True
            self._link.changed.notify_all()

    def cancel(self, reason: str) -> None:
        with self._link.changed:
            if self._link.broken is None:
                self._link.broken = reason
                self._out.queue.clear()
                self._in.queue.clear()
                self._link.changed.notify_all()

    def statistics(self) -> ChannelStatistics:
        out, into = self._out, self._in
        with self._link.changed:
            return ChannelStatistics(
                sent_messages=out.sent_messages,
                sent_bytes=out.sent_bytes,
                received_messages=into.received_messages,
                received_bytes=into.received_bytes,
                queued_messages=len(out.queue),
                queued_bytes=sum(message.size for message, _ in out.queue),
                oldest_queued_seconds=time.monotonic() - out.queue[0][1] if out.queue else 0.0,
                stall_seconds=out.stalled,
            )
