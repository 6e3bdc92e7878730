"""How many bytes each application may hold at a worker."""

from __future__ import annotations

import threading

from shuffle_api.errors import QuotaExceeded
from shuffle_api.ids import name_of


class AppQuota:
    """Payload bytes by application, committed and being written, at most `limit` each (0: no limit). Thread-safe.

    An application is named by one of its runs; all of them count together.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._used: dict[str, int] = {}

    def used(self, app: str) -> int:
        return self._used.get(name_of(app), 0)

    def total(self) -> int:
        """What all applications hold."""
        with self._lock:
            return sum(self._used.values())

    def take(self, app: str, count: int) -> None:
        """`app` is about to hold `count` bytes more. Raises QuotaExceeded, then nothing is taken."""
        app = name_of(app)
        with self._lock:
            used = self._used.get(app, 0)
            if not self._limit or used + count <= self._limit:
                self._used[app] = used + count
                return
        raise QuotaExceeded(
            f"application {app} holds {used} bytes at this worker, {count} more are above its quota of {self._limit}",
            remedy="unregister shuffles that are no longer read, or raise --app-max-bytes",
        )

    def enter(self, app: str, count: int) -> None:
        """`app` holds `count` bytes already: recovery found them."""
        app = name_of(app)
        with self._lock:
            self._used[app] = self._used.get(app, 0) + count

    def give(self, app: str, count: int) -> None:
        """`app` holds `count` bytes less."""
        app = name_of(app)
        with self._lock:
            rest = self._used.get(app, 0) - count
            if rest > 0:
                self._used[app] = rest
            else:
                self._used.pop(app, None)
