"""The calls to one file system, as a data directory's: how many are under way, and for how long.

A call to a dead disk, or to a file server that is gone, may never return, and the thread in it cannot be called back.
So the calls that requests make are counted: at most MOST_CALLS at once, the others wait until one ends. And the
directory's own thread (`caretaker`) makes a call every few seconds. When that one does not return within the limit, or
none of so many does, the directory hangs: calls are refused without being made, until those under way return. A
directory that is only busy does not hang: a call without a turn for too long is Overloaded, and no file is in doubt.
A process that stands still counts none of that time.

A directory that many want on the disk at the same time is synced once for all of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from shuffle_api.clock import LOOK_SHARE, LOOKS_PER_TIMEOUT, ServingClock
from shuffle_api.errors import Overloaded, StorageFailed

MOST_CALLS = 64
CHECK_DISK = "try again: other data directories are used if there are any; check this disk"
SLOW_SECONDS = 1.0
DISK_SECONDS = 30.0
WAIT_SECONDS = 60.0


class DiskCalls:
    """Those of one directory, or to an object store. Thread-safe.

    :param root: where, for errors.
    :param limit: seconds after which a call hangs. To be looked at (`slow`, `hang`) LOOKS_PER_TIMEOUT times in it.
    :param remedy: what to do about it when it hangs.
    :param source: what its clock measures.
    """

    def __init__(
        self,
        root: Path,
        limit: float = DISK_SECONDS,
        remedy: str = CHECK_DISK,
        source: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root, self._limit, self._remedy = root, limit, remedy
        self._clock = ServingClock(LOOK_SHARE * limit, source)
        self._changed = threading.Condition()
        self._since: dict[int, float] = {}  # by thread, the oldest first
        self._moved = self._clock()  # when the last one of requests began or returned
        self._own: float | None = None  # since when the directory's own thread is in one

    @contextmanager
    def request(self) -> Iterator[None]:
        """A call, or a few, on behalf of a request; inside another one it is part of that.

        :raises StorageFailed: the directory hangs.
        :raises Overloaded: so many calls are under way that this one was not made.
        """
        thread = threading.get_ident()
        if thread in self._since:
            yield
            return
        self._begin(thread)
        try:
            yield
        finally:
            with self._changed:
                del self._since[thread]
                self._moved = self._clock()
                self._changed.notify()

    def _begin(self, thread: int) -> None:
        with self._changed:
            began = now = self._clock()
            while (reason := self._hangs()) or len(self._since) >= MOST_CALLS:
                if reason:
                    raise StorageFailed(f"{self._root}: {reason}", remedy=self._remedy)
                if now - began > self._limit:
                    raise Overloaded(
                        f"{self._root}: {MOST_CALLS} calls to the file system are under way, and there was no turn"
                        f" for another one for {now - began:.0f} s",
                        remedy="try again later: it is busy",
                    )
                self._changed.wait(self._limit / LOOKS_PER_TIMEOUT)
                now = self._clock()
            self._since[thread] = self._moved = now

    @contextmanager
    def own(self) -> Iterator[None]:
        """A call of the directory's own thread; never refused."""
        self._own = self._clock()
        try:
            yield
        finally:
            self._own = None
            with self._changed:
                self._changed.notify_all()

    def alive(self) -> None:
        """The directory's own thread is done with one of many calls."""
        if self._own is not None:
            self._own = self._clock()

    @property
    def slow(self) -> bool:
        """Whether a call has been under way for SLOW_SECONDS: another one is worth making only if it must be."""
        with self._changed:
            return self._oldest() > SLOW_SECONDS

    @property
    def hang(self) -> str:
        """Why the directory hangs, empty when it does not."""
        with self._changed:
            return self._hangs()

    def _hangs(self) -> str:
        own = self._own
        if own is not None and (age := self._clock() - own) > self._limit:
            return f"a call to the file system has not returned for {age:.0f} s"
        if len(self._since) >= MOST_CALLS and (age := self._clock() - self._moved) > self._limit:
            return f"{MOST_CALLS} calls to the file system are under way, and none has returned for {age:.0f} s"
        return ""

    def _oldest(self) -> float:
        now, own = self._clock(), self._own
        return now - min(next(iter(self._since.values()), now), now if own is None else own)


@dataclass(slots=True)
class _Round:
    """One sync, and those who wait for it."""

    ended: threading.Event = field(default_factory=threading.Event)
    error: OSError | None = None


class SharedSync:
    """Group commit of names: a sync that begins after a name was made covers it, whoever asked for it. Thread-safe.

    While one sync of a directory runs, those who come wait for the next, which one of them runs for all.
    """

    def __init__(self, sync: Callable[[Path], None]) -> None:
        self._sync = sync
        self._lock = threading.Lock()
        self._running: dict[Path, _Round] = {}
        self._next: dict[Path, _Round] = {}

    def __call__(self, path: Path) -> None:
        """Return when a sync of `path` that began after this call has ended. Raises its OSError, StorageFailed."""
        with self._lock:
            mine = self._next.get(path)
            leads = mine is None
            if mine is None:
                mine = self._next[path] = _Round()
            before = self._running.get(path)
        if leads:
            self._lead(path, mine, before)
        elif not mine.ended.wait(2 * WAIT_SECONDS):
            raise StorageFailed(f"{path}: a sync does not end")
        if mine.error is not None:
            raise mine.error

    def _lead(self, path: Path, mine: _Round, before: _Round | None) -> None:
        if before is not None:
            before.ended.wait(WAIT_SECONDS)
        with self._lock:
            del self._next[path]  # who comes from now on may be too late for this one
            self._running[path] = mine
        try:
            self._sync(path)
        except OSError as error:
            mine.error = error
        finally:
            with self._lock:
                if self._running.get(path) is mine:
                    del self._running[path]
            mine.ended.set()
