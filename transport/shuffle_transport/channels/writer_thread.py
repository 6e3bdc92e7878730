"""Writes what reading threads want written: they must not wait for the transport themselves.

If the threads that read at both ends could wait in a write, each could wait for the other to read. So they hand what
there is to say to this thread, one per client or endpoint. It also says something on channels on which nothing is said
for long, so that the server knows that the client is alive, and answers that it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from shuffle_api.errors import ShuffleError
from shuffle_api.periodic import PeriodicTask, guarded

Ping = Callable[[float], None]
"""Called with a time in seconds: say something, unless that was done not longer ago."""

Broke = Callable[[ShuffleError], object]
"""Ends the channel that a write is of."""

_RETRY = 0.1  # seconds


def _ignore(error: ShuffleError) -> None:
    """The channel's own threads meet the same."""


class WriterThread:
    """Starts its thread when there is something to do.

    :param name: the thread's.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._writes: dict[Callable[[], None], Broke] = {}  # in order, each once
        self._pings: dict[object, tuple[Ping, float]] = {}
        self._pinged = time.monotonic()
        self._task: PeriodicTask | None = None
        self._stale = self._closed = False

    def soon(self, write: Callable[[], None], broke: Broke = _ignore) -> None:
        """Call `write` soon; once, if this is called again before. `broke` gets the error that it raises."""
        with self._changed:
            self._writes[write] = broke
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
        """End the thread, when all writes are done. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._task is not None:
            self._task.close()
        with self._changed:
            writes, self._writes = self._writes, {}
        self._do(writes)  # that came after its last round

    def _wake(self) -> None:
        self._stale = True
        self._changed.notify()
        if self._task is None and not self._closed:
            self._task = PeriodicTask(self._name, self._write, _RETRY, at_once=True)
            self._task.start()

    def _write(self) -> float:
        with self._changed:
            self._changed.wait_for(lambda: self._stale or self._closed, self._pause())
            self._stale = False
            writes, self._writes = self._writes, {}
            overdue = self._pings and self._pause() == 0
            pings = list(self._pings.values()) if overdue else []
        self._do(writes)
        if pings:
            self._pinged = time.monotonic()
        for ping, keepalive in pings:
            guarded(f"a ping of {self._name}", partial(ping, keepalive / 2), _ignore)
        return 0.0

    def _do(self, writes: dict[Callable[[], None], Broke]) -> None:
        for write, broke in writes.items():
            guarded(self._name, write, broke)

    def _pause(self) -> float | None:
        """Seconds until the next pings; None if there are none to come."""
        if not self._pings:
            return None
        shortest = min(keepalive for _, keepalive in self._pings.values())
        return max(0.0, self._pinged + shortest / 2 - time.monotonic())
