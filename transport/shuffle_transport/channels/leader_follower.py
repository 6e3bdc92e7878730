"""Who reads a stream: if possible the thread that waits for what comes, and nobody who would only stand in the way.

Handing a message from a thread that reads to one that waits costs as much as reading a small one. So who has to wait
*leads*, a consumer for an item or a sender for credit: it reads the stream itself. When it leaves, the stream's own
thread takes over: at once if somebody asked for it (`wake_leader`), else when the consumer has not come back for LINGER
seconds; so reading goes on beside long work, and gRPC receives ahead beside short work. It gives the lead back to a
consumer that waits when an item comes.

A thread that waits in a read costs every write on the same stream 20 to 30 us: gRPC wakes it for each. So while this
end sends and nobody waits for anything, nobody reads, for up to STAND_BY seconds: grants can wait until credit has run
out, and then who sends finds them there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from shuffle_api.errors import ShuffleError, StreamBroken
from shuffle_transport.channels.stream import Message, Stream
from shuffle_transport.channels.timer_thread import Deadline, TimerThread

LINGER = 0.02
STAND_BY = 0.25
WAITED = 200e-6
"""Seconds from which on a read had to wait: what is there already comes sooner."""


class StreamUser(Protocol):
    """What the messages of a stream are for."""

    def dispatch(self, message: Message) -> bool:
        """Take a message, in the thread that reads; whether it was an item for a consumer.

        It must not raise, and not wait for the transport.
        """

    def written(self) -> float:
        """When something was written last (time.monotonic)."""

    def ready(self) -> bool:
        """Whether there is something for a consumer."""

    def needs_reading(self) -> bool:
        """Whether a thread waits for what is no item. A thread that begins to, and does not lead, calls `wake_leader`
        after that became true."""

    def late(self) -> None:
        """A thread that leads should have left, and only a message ends its read. In the timer thread."""


class LeaderFollower:
    """The reading of one stream, by one thread at a time.

    :ivar heard_at: when something came last (time.monotonic).
    """

    def __init__(self, stream: Stream, timers: TimerThread, user: StreamUser) -> None:
        self._stream, self._timers, self._user = stream, timers, user
        self._lead = threading.Lock()  # held by who reads
        self._leaves_by = Deadline(timers, lambda _: user.late())  # of who leads, if that is not the own thread
        self._needed = threading.Event()  # the own thread is to lead
        self._asked_at = self.heard_at = time.monotonic()  # of the last read: when it began, and ended
        self._lingering = False
        self._following: dict[object, bool] = {}  # consumers that wait for the own thread to read; may it lead?
        self._end: ShuffleError | None = None

    @property
    def waited(self) -> bool:
        """The last read had to wait for its message."""
        return self.heard_at - self._asked_at > WAITED

    def run(self) -> ShuffleError:
        """Read, or stand by, until the stream has ended; says why. For the stream's own thread."""
        try:
            return self._read_or_stand_by()
        finally:
            self._leaves_by.close()

    def lead(self, deadline: float, until: Callable[[], bool] | None = None) -> bool:
        """Read until there is something for a consumer, it is `deadline` (time.monotonic), or the stream has ended.

        False, at once: somebody else reads, or it has ended.

        :param until: the condition that this thread waits for, if that is no item.
        """
        if self._end is not None or not self._lead.acquire(blocking=False):
            return False
        try:
            self._leaves_by.begin(deadline)
            there = until or self._user.ready
            while self._end is None and not there():
                message = self._read()
                is_item = message is not None and self._user.dispatch(message)
                if (is_item and until is None) or self.heard_at >= deadline:
                    break
        finally:
            self._leaves_by.end()
            self._lead.release()
        if self._user.needs_reading() or self._following or self._end is not None:
            self._needed.set()
        elif not self._lingering:
            self._linger()
        return True

    def follow(self, consumer: object, *, leads: bool) -> None:
        """`consumer` waits for what comes; with `leads` it would read itself if it could."""
        self._following[consumer] = leads
        self.wake_leader()

    def unfollow(self, consumer: object) -> None:
        self._following.pop(consumer, None)

    def wake_leader(self) -> None:
        """Somebody waits for what may be under way: see that it is read. Who leads now looks again when it leaves."""
        if not self._lead.locked():
            self._needed.set()

    def _read_or_stand_by(self) -> ShuffleError:
        while True:
            with self._lead:
                self._needed.clear()
                waiting: dict[object, bool] = {}
                while self._end is None:
                    message = self._read()
                    waiting = dict(self._following)
                    if message is None:
                        break
                    is_item = self._user.dispatch(message)
                    # Whoever waited for an item has it now, and can read the next itself; or nobody waits at all.
                    leaves = list(waiting.values()) == [True] if is_item else not waiting and self._sending()
                    if leaves and not self._user.needs_reading():
                        break
            if self._end is not None:
                return self._end
            if self._user.needs_reading() or self._following.keys() - waiting.keys():
                continue  # they came a moment ago, and found the lead taken
            self._linger()
            self._needed.wait()

    def _read(self) -> Message | None:
        self._asked_at = time.monotonic()
        try:
            message = self._stream.read()
        except ShuffleError as error:
            self._end = error
            return None
        self.heard_at = time.monotonic()
        if message is None:
            self._end = StreamBroken("the stream stopped before the end message")
        return message

    def _linger(self) -> None:
        self._lingering = True
        self._timers.begin(self, time.monotonic() + LINGER, self._come_back)

    def _come_back(self) -> None:
        """The timer thread's: LINGER seconds have passed since a leader left; or several have, and the last read
        later."""
        self._lingering = False
        if not self._lead.locked():
            unread_for = time.monotonic() - self.heard_at
            if unread_for < LINGER or (unread_for < STAND_BY and self._sending()):
                self._linger()
            else:
                self._needed.set()

    def _sending(self) -> bool:
        return time.monotonic() - self._user.written() < LINGER
