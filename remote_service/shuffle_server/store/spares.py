"""Files of removed map outputs, kept to be written over by the next outputs of the same application.

To write over a file that lies in the page cache is a copy. A new file needs new pages too, and where a hypervisor has
to find memory for them that costs several times the copy (docs/benchmarks/README.md, "Where the time goes").
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class _Spare:
    path: Path
    size: int
    since: float


class SpareFiles:
    """At most `budget` bytes of files below `root`. Thread-safe.

    They are kept by application: one's bytes never lie in another's file.
    The contents are gone with the application, with the server, or after a while without use. Whoever reads a committed
    file holds a shared lock on it (flock), so a file that is still being read is never written over.
    """

    def __init__(self, root: Path, budget: int) -> None:
        self._root, self._budget = root, budget
        self._lock = threading.Lock()
        self._spares: dict[str, list[_Spare]] = {}
        self._bytes = 0
        self._names = itertools.count()
        shutil.rmtree(root, ignore_errors=True)

    @property
    def bytes(self) -> int:
        """Bytes on disk that are given back when they are needed."""
        return self._bytes

    def keep(self, app: str, path: Path) -> bool:
        """Take over the file at `path`, which nobody can open any more; False when it does not fit the budget."""
        size = path.stat().st_size
        with self._lock:
            if self._bytes + size > self._budget:
                return False
            self._bytes += size
        spare = _Spare(self._root / app / str(next(self._names)), size, time.monotonic())
        try:
            spare.path.parent.mkdir(parents=True, exist_ok=True)
            path.rename(spare.path)
        except OSError:
            with self._lock:
                self._bytes -= size
            raise
        with self._lock:
            self._spares.setdefault(app, []).append(spare)
        return True

    def take(self, app: str, path: Path) -> int | None:
        """Move a spare file to `path`; a descriptor of it, exclusively locked, or None when there is none."""
        while (spare := self._pop(app)) is not None:
            fd = os.open(spare.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                spare.path.rename(path)
            except BlockingIOError:  # a pull that began before the removal is not over
                os.close(fd)
                spare.path.unlink()
            except OSError:
                os.close(fd)
                spare.path.unlink(missing_ok=True)
                raise
            else:
                return fd
        return None

    def _pop(self, app: str) -> _Spare | None:
        with self._lock:
            spares = self._spares.get(app)
            if not spares:
                return None
            spare = spares.pop()  # the last one: most of it is in the page cache
            self._bytes -= spare.size
            return spare

    def drop(self, app: str | None = None, *, idle: float = 0.0) -> int:
        """Delete the spare files (of one application) that have not been used for `idle` seconds; bytes freed."""
        before = time.monotonic() - idle
        dropped: list[_Spare] = []
        with self._lock:
            for name in [app] if app is not None else list(self._spares):
                spares = self._spares.pop(name, [])
                dropped += [s for s in spares if s.since <= before]
                if kept := [s for s in spares if s.since > before]:
                    self._spares[name] = kept
            freed = sum(s.size for s in dropped)
            self._bytes -= freed
        for spare in dropped:
            spare.path.unlink(missing_ok=True)
        for directory in {spare.path.parent for spare in dropped}:
            try:
                directory.rmdir()
            except OSError:
                pass  # there are others in it
        return freed
