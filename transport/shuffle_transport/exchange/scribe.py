"""Writes what reading threads want written: they must not wait for the transport themselves.

If the threads that read at both ends could wait in a write, each could wait for the other to read. So they hand what
there is to say to this thread, one per client or endpoint. It also says something on channels on which nothing is said
for long, so that the server knows that the client is alive, and answers that it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

Ping = Callable[[float], None]
"""Called with a time in seconds: say something, unless that was done not longer ago."""


class Scribe:
    """Starts its thread when there is something to do.

    :param name: the thread's.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._errands: dict[Callable[[], None], None] = {}  # in order, each once
        self._pings: dict[object, tuple[Ping, float]] = {}
        self._pinged = time.monotonic()
        self._thread: threading.Thread | None = None
        self._stale = self._closed = False

    def soon(self, errand: Callable[[], None]) -> None:
        """Call `errand` soon; once, if this is said again before."""
        with self._changed:
            self._errands[errand] = None
            self._wake()

    def keep_alive(self, key: object, ping: Ping, keepalive: float) -> None:
        """Call `ping(keepalive / 2)` every `keepalive` / 2 seconds, or more often, until `forget`."""
        with self._changed:
            self._pings[key] = ping, keepalive
            self._wake()

    def forget(self, key: object) -> None:
        with self._changed:
            self._pings.pop(key, None)

    def close(self) -> None:
        """End the thread, when all errands are done. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _wake(self) -> None:
        self._stale = True
        self._changed.notify()
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stale or self._closed, self._pause())
                self._stale = False
                errands, self._errands = list(self._errands), {}
                if self._closed and not errands:
                    return
                overdue = self._pings and self._pause() == 0
                pings = list(self._pings.values()) if overdue else []
            for errand in errands:
                errand()
            if pings:
                self._pinged = time.monotonic()
            for ping, keepalive in pings:
                ping(keepalive / 2)

    def _pause(self) -> float | None:
        """Seconds until the next pings; None if there are none to come."""
        if not self._pings:
            return None
        shortest = min(keepalive for _, keepalive in self._pings.values())
        return max(0.0, self._pinged + shortest / 2 - time.monotonic())
