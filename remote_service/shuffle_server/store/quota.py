"""How many bytes and open attempts each application may have at a worker."""

from __future__ import annotations

import resource
import threading

from shuffle_api.errors import QuotaExceeded
from shuffle_api.ids import name_of

MOST_ATTEMPTS = 4096

FOR_ATTEMPTS = 3 / 4
"""The part of the files that this process may have open which attempts take at most."""


class AppQuota:
    """Payload bytes by application, committed and being written, at most `limit` each (0: no limit). Thread-safe.

    And attempts that are being written, at most `most_attempts` each. Each has a file open, so an application has no
    more of them than are left for all together: however many it opens, another one can open some.
    An application is named by one of its runs; all of them count together.
    """

    def __init__(self, limit: int, most_attempts: int = MOST_ATTEMPTS) -> None:
        self._limit, self._most_attempts = limit, most_attempts
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._files = files if files == resource.RLIM_INFINITY else int(files * FOR_ATTEMPTS)
        self._attempts: dict[str, int] = {}
        self._lock = threading.Lock()
        self._used: dict[str, int] = {}

    def used(self, app: str) -> int:
        return self._used.get(name_of(app), 0)

    def total(self) -> int:
        """What all applications hold."""
        with self._lock:
            return sum(self._used.values())

    def open_attempt(self, app: str) -> None:
        """`app` begins to write an attempt. Raises QuotaExceeded."""
        app = name_of(app)
        with self._lock:
            own, left = self._attempts.get(app, 0), self._most_attempts
            if self._files != resource.RLIM_INFINITY:
                left = self._files - sum(self._attempts.values())
            if own < min(left, self._most_attempts):
                self._attempts[app] = own + 1
                return
        raise QuotaExceeded(
            f"application {app} writes {own} attempts at this worker, its quota is {self._most_attempts}, and it"
            f" leaves as many to others as it has: {left} more can be opened by all",
            remedy="commit or abort some, or raise --app-max-attempts or the limit of open files (ulimit -n)",
        )

    def close_attempt(self, app: str) -> None:
        """An attempt of `app` has ended."""
        app = name_of(app)
        with self._lock:
            rest = self._attempts.get(app, 0) - 1
            if rest > 0:
                self._attempts[app] = rest
            else:
                self._attempts.pop(app, None)

    def largest_attempts(self) -> int:
        """The most attempts that one application writes."""
        with self._lock:
            return max(self._attempts.values(), default=0)

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
            remedy="unregister shuffles without readers, or raise --app-max-bytes",
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
