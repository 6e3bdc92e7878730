"""The last heartbeat of each application: in memory, so a restart forgives all silence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from shuffle_api.clock import LOOK_SHARE, ServingClock, boot_seconds


class AppLiveness:
    """The last heartbeats of applications. Thread-safe.

    :param silent_seconds: an application that sends no heartbeat for so long is silent.
    """

    def __init__(self, silent_seconds: float = 600.0, source: Callable[[], float] = boot_seconds) -> None:
        self.silent_seconds = silent_seconds
        self._clock = ServingClock(LOOK_SHARE * silent_seconds, source)
        self._seen: dict[str, float] = {}
        self._lock = threading.RLock()

    def heard(self, app: str) -> None:
        """It has sent a heartbeat, or has registered."""
        with self._lock:
            self._seen[app] = self._clock()

    def idle(self, app: str) -> float:
        """Seconds since its last heartbeat; 0 for one of which this process has no heartbeat yet."""
        with self._lock:
            now = self._clock()
            return now - self._seen.get(app, now)

    def is_silent(self, app: str) -> bool:
        return self.idle(app) > self.silent_seconds

    def silent(self, live: Collection[str]) -> list[str]:
        """Those of the live applications that are silent. One without a heartbeat yet has it now.

        Heartbeats come meanwhile: only entries that have not changed since the look are forgotten.
        """
        with self._lock:
            now, seen = self._clock(), dict(self._seen)
        ended = seen.keys() - set(live)
        for app in ended:
            with self._lock:
                if self._seen.get(app) == seen[app]:
                    del self._seen[app]
        for app in live:
            if app not in seen:
                with self._lock:
                    self._seen.setdefault(app, now)
        return [app for app in live if now - seen.get(app, now) > self.silent_seconds]
