"""The calls to the file system below one data directory: how many are under way, and for how long.

A call to a dead disk, or to a file server that is gone, may never return, and the thread in it cannot be called back.
So the calls that requests make are counted: at most MOST_CALLS at once, the others wait until one ends. And the
directory's own thread (`caretaker`) makes a call every few seconds. When that one does not return within the limit, or
none of so many does, the directory hangs: calls are refused without being made, until those under way return.

A directory that many want on the disk at the same time is synced once for all of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from shuffle_api.errors import StorageFailed

MOST_CALLS = 64
SLOW_SECONDS = 1.0
DISK_SECONDS = 30.0
WAIT_SECONDS = 60.0


class DiskCalls:
    """Those of one directory. Thread-safe.

    :param limit: seconds after which a call hangs.
    """

    def __init__(self, root: Path, limit: float = DISK_SECONDS) -> None:
        self._root, self._limit = root, limit
        self._changed = threading.Condition()
        self._since: dict[int, float] = {}  # by thread, the oldest first
        self._own = 0.0  # since when the directory's own thread is in one, 0 when it is not

    @contextmanager
    def request(self) -> Iterator[None]:
        """A call, or a few, on behalf of a request; inside another one it is part of that.

        :raises StorageFailed: the directory hangs; or so many calls are under way, and none of them ends.
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
                self._changed.notify()

    def _begin(self, thread: int) -> None:
        give_up = 0.0
        with self._changed:
            while (reason := self._hangs()) or len(self._since) >= MOST_CALLS:
                now = time.monotonic()
                give_up = give_up or now + self._limit
                if reason or not self._changed.wait(give_up - now):
                    raise self._refused(reason or f"{MOST_CALLS} calls to the file system are under way")
            self._since[thread] = time.monotonic()

    @contextmanager
    def own(self) -> Iterator[None]:
        """A call of the directory's own thread; never refused."""
        self._own = time.monotonic()
        try:
            yield
        finally:
            self._own = 0.0
            with self._changed:
                self._changed.notify_all()

    def alive(self) -> None:
        """The directory's own thread is done with one of many calls."""
        if self._own:
            self._own = time.monotonic()

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
        if own and (age := time.monotonic() - own) > self._limit:
            return f"a call to the file system has not returned for {age:.0f} s"
        if len(self._since) >= MOST_CALLS and (age := self._oldest()) > self._limit:
            return f"{MOST_CALLS} calls to the file system are under way, the oldest for {age:.0f} s"
        return ""

    def _oldest(self) -> float:
        own = self._own
        oldest = min(next(iter(self._since.values()), own or float("inf")), own or float("inf"))
        return time.monotonic() - oldest

    def _refused(self, reason: str) -> StorageFailed:
        return StorageFailed(
            f"{self._root}: {reason}",
            remedy="try again: other data directories are used if there are any; check this disk",
        )


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
