"""Who reads a stream: always somebody, and if possible the thread that waits for what comes.

Handing a small message from a thread that reads to one that waits costs as much as reading it. So a consumer that has
to wait *leads*: it reads the stream itself. When it leaves, the stream's own thread takes over: at once if the last
message was large (then reading goes on beside the consumer's work) or somebody asked for it (`summon`), else when the
consumer has not come back for LINGER seconds. It gives the lead back when a consumer waits and a small message comes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from shuffle_api.errors import ShuffleError, StreamBroken
from shuffle_transport.exchange.keeper import Keeper
from shuffle_transport.exchange.stream import Message, Stream

LINGER = 0.02
LARGE = 64 << 10
"""Payload bytes from which on a message is large."""


class Reading:
    """The reading of one stream, by one thread at a time.

    :param dispatch: called with each message by who reads. Returns the payload bytes of an item for a consumer, None if
        the message was something else. Must not raise, and not wait for the transport.
    """

    def __init__(self, stream: Stream, keeper: Keeper, dispatch: Callable[[Message], int | None]) -> None:
        self._stream, self._keeper, self._dispatch = stream, keeper, dispatch
        self._lead = threading.Lock()  # held by who reads
        self._needed = threading.Event()  # the own thread is to lead
        self._summoned = self._lingering = False
        self._left = 0.0  # when the last leader left
        self._following: dict[object, None] = {}  # consumers that wait for the own thread to read
        self._end: ShuffleError | None = None

    def run(self) -> ShuffleError:
        """Read, or stand by, until the stream has ended; says why. For the stream's own thread."""
        while True:
            with self._lead:
                self._summoned = False
                self._needed.clear()
                while self._end is None:
                    message = self._read()
                    alone = len(self._following) == 1
                    size = self._dispatch(message) if message is not None else None
                    if size is None:
                        self._summoned = False  # it may be what somebody waited for
                    elif alone and size < LARGE and not self._summoned:
                        break  # whoever waited has its item now, and can read the next itself
            if self._end is not None:
                return self._end
            self._left = time.monotonic()
            self._linger()
            self._needed.wait()

    def lead(self, done: Callable[[], bool]) -> bool:
        """Read until `done()`, or the stream has ended. False, at once: somebody else reads, or it has ended."""
        if self._end is not None or not self._lead.acquire(blocking=False):
            return False
        size: int | None = None
        try:
            while self._end is None and not done():
                message = self._read()
                size = self._dispatch(message) if message is not None else None
        finally:
            self._lead.release()
        self._left = time.monotonic()
        if self._summoned or self._following or self._end is not None or (size is not None and size >= LARGE):
            self._needed.set()
        elif not self._lingering:
            self._linger()
        return True

    def follow(self, consumer: object) -> None:
        """`consumer` waits in vain for the lead: it would like to have it."""
        self._following[consumer] = None
        self._needed_now()

    def unfollow(self, consumer: object) -> None:
        self._following.pop(consumer, None)

    def summon(self) -> None:
        """Somebody waits for what may be under way: see that it is read."""
        self._summoned = True
        if not self._lead.locked():
            self._needed.set()

    def _read(self) -> Message | None:
        try:
            message = self._stream.read()
        except ShuffleError as error:
            self._end = error
            return None
        if message is None:
            self._end = StreamBroken("the stream stopped before the end message")
        return message

    def _linger(self) -> None:
        self._lingering = True
        self._keeper.begin(self, self._left + LINGER, self._come_back)

    def _come_back(self) -> None:
        """The keeper's: LINGER seconds have passed since a leader left; or several have, and the last left later."""
        self._lingering = False
        if not self._lead.locked():
            if self._left + LINGER > time.monotonic():
                self._linger()
            else:
                self._needed.set()

    def _needed_now(self) -> None:
        if not self._lead.locked():
            self._needed.set()
