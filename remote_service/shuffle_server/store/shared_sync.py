"""One sync for all who want the same directory on the disk at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from shuffle_api.errors import StorageFailed

WAIT_SECONDS = 60.0


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
