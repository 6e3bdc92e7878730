"""A channel that misbehaves on cue, around any other channel.

For tests of everything that runs over a :class:`~tests.shuffle_transport.channel.Channel`, those of other packages
included: the script says which message of this end meets which fault, so a failure can be repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

from shuffle_api.errors import DeadlineExceeded, InvalidArgument, StreamBroken
from tests.shuffle_transport.channel import Channel, ChannelStatistics, Message


@dataclass(frozen=True, slots=True)
class Drop:
    """The message never arrives, and neither end gets an error."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The message, and so all behind it, is held up this long; DeadlineExceeded if that is longer than the sender's
    timeout. A cancel of this end ends the delay."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The message arrives `copies` times more."""

    copies: int = 1


@dataclass(frozen=True, slots=True)
class Truncate:
    """Only the first `keep` payload bytes arrive, and no control message if the payload was empty."""

    keep: int = 0


@dataclass(frozen=True, slots=True)
class Flip:
    """One bit of payload byte `at` (counted modulo the length) is inverted; without payload, of the control message."""

    at: int = 0


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection breaks before the message: both ends get StreamBroken, and messages under way are lost."""


Fault = Drop | Delay | Duplicate | Truncate | Flip | Reset


class FaultyChannel(Channel):
    """`inner` with faults in what this end sends.

    :param script: message number (counted from 0 over all messages this end sends) to the fault it meets.
    """

    def __init__(self, inner: Channel, script: Mapping[int, Fault]) -> None:
        self._inner, self._script = inner, dict(script)
        self._sending = threading.Lock()  # numbers are given in the order of sending
        self._cancelled = threading.Event()
        self._number = 0

    @property
    def met(self) -> list[Fault]:
        """The faults that have happened, in order."""
        with self._sending:
            return [fault for number, fault in sorted(self._script.items()) if number < self._number]

    def send(self, message: Message, timeout: float) -> None:
        with self._sending:
            fault = self._script.get(self._number)
            self._number += 1
            match fault:
                case None:
                    self._inner.send(message, timeout)
                case Drop():
                    pass
                case Delay(seconds):
                    self._cancelled.wait(min(seconds, timeout))
                    if seconds >= timeout:
                        raise DeadlineExceeded(
                            f"the message is held up for {seconds:g} s, the timeout is {timeout:g} s"
                        )
                    self._inner.send(message, timeout - seconds)
                case Duplicate(copies):
                    for _ in range(1 + copies):
                        self._inner.send(message, timeout)
                case Truncate(keep):
                    self._inner.send(_truncated(message, keep), timeout)
                case Flip(at):
                    self._inner.send(_flipped(message, at), timeout)
                case Reset():
                    self._inner.cancel(f"reset before message {self._number - 1}")
                    raise StreamBroken(f"the connection was reset before message {self._number - 1}")

    def receive(self, timeout: float) -> Message | None:
        return self._inner.receive(timeout)

    def half_close(self) -> None:
        self._inner.half_close()

    def cancel(self, reason: str) -> None:
        self._cancelled.set()
        self._inner.cancel(reason)

    def statistics(self) -> ChannelStatistics:
        return self._inner.statistics()


def _truncated(message: Message, keep: int) -> Message:
    if not message.size:
        return Message()
    return replace(message, payload=memoryview(message.payload).cast("B")[:keep])


def _flipped(message: Message, at: int) -> Message:
    data = bytearray(message.payload if message.size else message.control)
    if not data:
        raise InvalidArgument("an empty message has no bit to flip", remedy="put the Flip on another message number")
    data[at % len(data)] ^= 1
    return replace(message, payload=bytes(data)) if message.size else replace(message, control=bytes(data))
