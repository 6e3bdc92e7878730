"""Deadlines for what cannot be given one: Flight's reads and writes wait for as long as the transport does.

One thread per client or endpoint. Whoever begins a write says until when it may last; when that passes the keeper
aborts the stream, which ends the write. Between deadlines it asks every watched channel whether its peer is alive.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LONG = 3600.0

Check = Callable[[float], float]
"""Called with the time; returns when to be called again. Must not wait for anything but short locks."""


class Keeper:
    """Runs checks and aborts what is overdue. Starts its thread with the first thing it is to watch.

    :param name: the thread's.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._checks: dict[object, Check] = {}
        # Written without the lock, once before and once after each write of a channel: single dict operations.
        self._guards: dict[object, tuple[float, Callable[[], None]]] = {}
        self._wakes = 0.0
        self._thread: threading.Thread | None = None
        self._closed = self._stale = False

    def watch(self, key: object, check: Check) -> None:
        """Call `check` now and then until `forget`."""
        with self._changed:
            self._checks[key] = check
            self._start()
            self._look_again()

    def hurry(self) -> None:
        """Call all checks now: one of them has an earlier time to say."""
        with self._changed:
            self._look_again()

    def forget(self, key: object) -> None:
        with self._changed:
            self._checks.pop(key, None)

    @contextmanager
    def guard(self, deadline: float, abort: Callable[[], None]) -> Iterator[None]:
        """Call `abort` if the block has not ended at `deadline` (time.monotonic)."""
        key = object()
        self.begin(key, deadline, abort)
        try:
            yield
        finally:
            self.end(key)

    def begin(self, key: object, deadline: float, abort: Callable[[], None]) -> None:
        """As entering `guard`, for those who do it a thousand times a second."""
        self._guards[key] = deadline, abort
        if deadline < self._wakes or self._thread is None:
            with self._changed:
                self._start()
                self._look_again()

    def end(self, key: object) -> None:
        self._guards.pop(key, None)

    def close(self) -> None:
        """End the thread. Idempotent."""
        with self._changed:
            self._closed = True
            self._look_again()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def _look_again(self) -> None:
        self._stale = True
        self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                self._stale = False
                checks = list(self._checks.values())
            now = time.monotonic()
            due = [check(now) for check in checks]
            for key, entry in list(self._guards.items()):
                deadline, abort = entry
                if deadline <= now and self._guards.get(key) is entry:
                    del self._guards[key]
                    abort()
            with self._changed:
                self._wakes = min(due, default=now + _LONG)
                # A guard that came while this thread was busy compared itself with an old time: count it in.
                soonest = min((deadline for deadline, _ in list(self._guards.values())), default=self._wakes)
                self._wakes = min(self._wakes, soonest)
                self._changed.wait_for(lambda: self._stale, max(0.0, self._wakes - time.monotonic()))
