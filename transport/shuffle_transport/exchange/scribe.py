"""Writes what a client's reading threads want written: they must not wait for the transport themselves.

If the reading threads of both ends could wait in a write, each could wait for the other to read. So a server's may, and
a client's may not: it hands what it has to say to this thread, one per client. It also says something on channels
on which nothing is said for long, so that the server knows that the client is alive, and answers that it is.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Speaker(Protocol):
    """What a channel offers to a scribe. Both may wait for the transport."""

    def tell(self) -> None: ...
    def ping(self, silence: float) -> None: ...


class Scribe:
    """Starts its thread with the first channel.

    :param name: the thread's.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._told: dict[Speaker, None] = {}  # in order, each once
        self._watched: dict[Speaker, float] = {}
        self._thread: threading.Thread | None = None
        self._closed = self._stale = False

    def tell(self, channel: Speaker) -> None:
        """Have `channel.tell()` called soon."""
        with self._changed:
            self._told[channel] = None
            self._changed.notify()

    def watch(self, channel: Speaker, keepalive: float) -> None:
        """Call `channel.ping(keepalive)` at least every `keepalive` / 2 seconds, until `forget`; 0: never."""
        with self._changed:
            if keepalive:
                self._watched[channel] = keepalive
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._stale = True
            self._changed.notify()

    def forget(self, channel: Speaker) -> None:
        with self._changed:
            self._told.pop(channel, None)
            self._watched.pop(channel, None)

    def close(self) -> None:
        """End the thread, when what it writes is written. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        pinged = time.monotonic()
        while True:
            with self._changed:
                self._stale = False
                pause = min(self._watched.values(), default=None)
                wait = None if pause is None else max(0.0, pinged + pause / 2 - time.monotonic())
                self._changed.wait_for(lambda: self._told or self._closed or self._stale, wait)
                if self._closed:
                    return
                told, self._told = list(self._told), {}
                overdue = pause is not None and time.monotonic() >= pinged + pause / 2
                quiet = list(self._watched.items()) if overdue else []
            for channel in told:
                channel.tell()
            if quiet:
                pinged = time.monotonic()
            for channel, keepalive in quiet:
                channel.ping(keepalive)
