"""A process that ends without `close`: its open servers and calls are abandoned, so that it ends at once.

At the end of a process Arrow waits until every call to its Flight servers has ended, and a peer may keep a call open
for ever. So what serves or holds calls is registered here while it is open, and abandoned before Arrow waits: `atexit`
runs what was registered last first, and Arrow's part is registered with the first `weakref.finalize`. Peers get a
StreamBroken.

A forked child has none of the threads that its parent's servers need, and shares their sockets: there nothing is
abandoned, and Arrow is kept from shutting down what is the parent's.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from pyarrow.flight import FlightServerBase

from shuffle_api.errors import ShuffleError, StreamBroken
from shuffle_api.periodic import StreamThread, guarded

EXIT_SECONDS = 3.0
"""For peers to get the reason; then their connections are cut, and for as long again for the calls to end."""


class Abandoned(Protocol):
    """Something with servers, calls or threads."""

    def abandon(self, reason: ShuffleError) -> None:
        """End everything with `reason`; nothing that was not complete is to look complete. Waits for peers briefly."""
        ...

    def cut(self) -> None:
        """Shut down the connections of its servers: `abandon` has not ended in time. Never waits."""
        ...


class _Exit:
    """What is open in this process, and the thread that abandons it: at exit no thread can be started any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, Abandoned] = {}
        self._begin = threading.Event()
        self._thread: StreamThread | None = None

    def add(self, opened: Abandoned) -> None:
        with self._lock:
            self._open[id(opened)] = opened
            if self._thread is None:
                weakref.finalize(self, int)  # so that Arrow's finalizers run after what is registered now
                atexit.register(self._abandon)
                self._thread = StreamThread("exit", self._run, lambda error: None)
                self._thread.start()

    def remove(self, opened: Abandoned) -> None:
        with self._lock:
            self._open.pop(id(opened), None)

    def _all(self) -> list[Abandoned]:
        with self._lock:
            return list(self._open.values())

    def _abandon(self) -> None:
        """A call that comes back to an interpreter that is gone ends the process with a signal: so all end before."""
        if self._open and self._thread is not None:
            self._begin.set()
            self._thread.join(EXIT_SECONDS)
            if self._thread.is_alive():
                for each in self._all():
                    each.cut()
                self._thread.join(EXIT_SECONDS)

    def _run(self) -> None:
        self._begin.wait()
        for each in self._all():
            guarded("the exit of this process", _abandoning(each), lambda error: None)


def _abandoning(opened: Abandoned) -> Callable[[], None]:
    reason = StreamBroken(
        f"process {os.getpid()} ended without closing its shuffle plugin",
        remedy="see why the task ended; run it again as a new attempt",
    )
    return lambda: opened.abandon(reason)


_exit = _Exit()


def opened(what: Abandoned) -> None:
    """`what` has servers or calls from now on until `closed`. Idempotent."""
    _exit.add(what)


def closed(what: Abandoned) -> None:
    """Idempotent."""
    _exit.remove(what)


def _forked() -> None:
    """In a child: everything that is open is the parent's."""
    global _exit
    atexit.unregister(_exit._abandon)
    _exit = _Exit()
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        found = finalizer.peek()
        if found is not None and isinstance(found[0], FlightServerBase):
            finalizer.atexit = False


os.register_at_fork(after_in_child=_forked)
