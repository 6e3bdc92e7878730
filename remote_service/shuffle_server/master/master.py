"""The master: one registry, one lock, one journal."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from shuffle_api.errors import ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry.events import Event
from shuffle_api.registry.operations import (
    ExpireApps,
    Heartbeat,
    LoseMapOutput,
    Operation,
    RegisterApp,
    RegisterShuffle,
    RegisterWorker,
)
from shuffle_api.registry.state import Registry
from shuffle_server.master.journal import Journal, replay

log = logging.getLogger(__name__)

Listener = Callable[[Event], None]
_EVENTLESS = RegisterApp | RegisterShuffle | RegisterWorker  # these change the registry and bring about no event


class Master:
    """The registry as a service for threads: operations are applied in one order, journalled, then acknowledged.

    Listeners hear of every event after the operation is durable, outside the lock.
    """

    def __init__(self, directory: Path, *, sync: bool = False) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._registry = Registry()
        path = directory / "registry.journal"
        for operation in replay(path):
            self._registry.apply(operation)
        for app in self._registry.apps():  # the time while the master was down is not held against anybody
            self._registry.apply(Heartbeat(app.app, time.time()))
        self._journal = Journal(path, self._registry.operations(), sync=sync)
        self._listeners: list[Listener] = []
        self.epoch = _next_epoch(directory / "epoch")

    def subscribe(self, listener: Listener) -> None:
        """Have `listener` called with every event from now on."""
        self._listeners.append(listener)

    def apply(self, operation: Operation) -> tuple[Event, ...]:
        """Apply, make durable, tell the listeners; what came about.

        Raises what the registry raises, and then nothing has changed. An operation that changes nothing (it came a
        second time, or names what is not there) is not journalled, so that whoever repeats it fills no disk.
        """
        with self._lock:
            known = self._knows(operation)
            events = self._registry.apply(operation)
            if events or (isinstance(operation, _EVENTLESS) and not known):
                number = self._journal.append(operation)
            else:
                # What it repeats may still be on its way to the disk, on behalf of whoever said it first.
                number = 0 if isinstance(operation, Heartbeat | ExpireApps) else self._journal.appended
        self._journal.flush(number)
        for event in events:
            for listener in self._listeners:
                listener(event)
        return events

    def _knows(self, operation: Operation) -> bool:
        """Whether this operation, one of those that bring about no event, has been applied before."""
        registry = self._registry
        try:
            if isinstance(operation, RegisterShuffle):
                return registry.spec(operation.spec.id) == operation.spec
            if isinstance(operation, RegisterApp):
                return registry.app(operation.app).instance == operation.instance
            if isinstance(operation, RegisterWorker):
                return registry.worker(operation.info.id) == operation.info
        except ShuffleError:
            return False
        return False

    def lose(self, shuffle: ShuffleId, output: MapAttempt, reason: str) -> None:
        """Record that a committed output is gone; a no-op when that is known, or its shuffle is gone too."""
        try:
            events = self.apply(LoseMapOutput(shuffle, output, reason))
        except ShuffleError as error:
            log.info("not recorded as lost: %s", error)
            return
        if events:
            log.warning(
                "lost: map %d attempt %d of shuffle %d of app %s: %s",
                output.map,
                output.attempt,
                shuffle.shuffle,
                shuffle.app,
                reason,
            )

    def expire(self, silent_seconds: float) -> None:
        """Remove the applications that have not sent a heartbeat for so long."""
        self.apply(ExpireApps(time.time() - silent_seconds))

    def heartbeat(self, app: str) -> None:
        """Raises UnknownApp or AppExpired."""
        self.apply(Heartbeat(app, time.time()))

    @property
    def registry(self) -> Registry:
        """For queries under `lock` only."""
        return self._registry

    @property
    def lock(self) -> threading.Lock:
        return self._lock

    def close(self) -> None:
        self._journal.close()


def _next_epoch(path: Path) -> int:
    """One more than at the start before; clients tell by it that the master was restarted."""
    epoch = int(path.read_text()) + 1 if path.exists() else 1
    path.with_suffix(".new").write_text(str(epoch))
    path.with_suffix(".new").replace(path)
    return epoch
