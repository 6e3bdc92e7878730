"""When each application was heard of last: in memory, so a restart forgives all silence."""

from __future__ import annotations

from collections.abc import Callable, Collection

from shuffle_api.clock import ServingClock, boot_seconds

LOOK_SHARE = 0.25
"""Of the time after which a silent peer is given up: so much silence counts between two looks at most. A master that
stood still for longer has received nothing, and the heartbeats sent meanwhile are yet to be read."""

LOOKS_PER_TIMEOUT = 8
"""How often the master looks at least; more often than `LOOK_SHARE` asks for, so that its clock is not slow."""


class AppLiveness:
    """The last heartbeats of applications. To be called under the lock of the registry that holds the applications.

    :param silent_seconds: an application that sends no heartbeat for so long is silent.
    """

    def __init__(self, silent_seconds: float = 600.0, source: Callable[[], float] = boot_seconds) -> None:
        self.silent_seconds = silent_seconds
        self._clock = ServingClock(LOOK_SHARE * silent_seconds, source)
        self._seen: dict[str, float] = {}

    def heard(self, app: str) -> None:
        """It has sent a heartbeat, or has registered."""
        self._seen[app] = self._clock()

    def idle(self, app: str) -> float:
        """Seconds since its last heartbeat; 0 for one that this process has not heard of yet."""
        now = self._clock()
        return now - self._seen.get(app, now)

    def is_silent(self, app: str) -> bool:
        return self.idle(app) > self.silent_seconds

    def silent(self, live: Collection[str]) -> list[str]:
        """Those of the live applications that are silent. One that was never heard of counts as heard of now."""
        now = self._clock()
        self._seen = {app: self._seen.get(app, now) for app in live}
        return [app for app in live if self.is_silent(app)]
