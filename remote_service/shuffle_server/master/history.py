"""What happened in the cluster: each event is one line of the log, and the last ones are kept for those who ask."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from shuffle_api.registry.events import AppRemoved, Event, LostOutput, WorkerLost
from shuffle_api.tables import counted
from shuffle_server import __version__
from shuffle_server.observe.log_context import log_context
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)

EVENTS_KEPT = 1000
LOST_KEPT = 100  # workers


class History:
    """The events of one epoch of a master. Thread-safe; a restart of the master begins a new one."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._events: deque[pb.ClusterEvent] = deque(maxlen=EVENTS_KEPT)
        self._number = 0
        self._lost: dict[str, tuple[float, pb.LostWorker]] = {}
        self.workers_lost = 0
        self.outputs_lost = 0

    def record(self, kind: str, text: str, *, worker: str = "", app: str = "", level: int = logging.INFO) -> None:
        """Log an event, and keep it."""
        with self._lock:
            self._number += 1
            self._events.append(
                pb.ClusterEvent(
                    number=self._number, unix_seconds=self._clock(), kind=kind, worker=worker, app=app, text=text
                )
            )
        with log_context(**({"app": app} if app else {})):
            log.log(level, "%s: %s", kind, text)

    def events(self, after: int = 0, limit: int = 0) -> list[pb.ClusterEvent]:
        """Those with a number above `after`, the newest `limit` of them (0: all), in their order."""
        with self._lock:
            found = [event for event in self._events if event.number > after]
        return found[-limit:] if limit else found

    def lost(self) -> list[pb.LostWorker]:
        """The workers that were lost and have not joined again, the newest last."""
        with self._lock:
            now = self._clock()
            return [
                pb.LostWorker(worker=each.worker, address=each.address, seconds=max(0.0, now - at), reason=each.reason)
                for at, each in self._lost.values()
            ]

    def joined(self, worker: str) -> None:
        """A worker that was lost may be back."""
        with self._lock:
            self._lost.pop(worker, None)

    def happened(self, event: Event) -> None:
        """A listener for the registry's events."""
        if isinstance(event, LostOutput):
            with self._lock:
                self.outputs_lost += 1
        elif isinstance(event, AppRemoved):
            self.record(
                "application-ended",
                f"{event.app} {event.reason}: {counted(event.shuffles, 'shuffle')} with {event.bytes} bytes removed",
                app=event.app,
            )
        elif isinstance(event, WorkerLost) and not event.drained:
            with self._lock:
                self.workers_lost += 1
                lost = pb.LostWorker(worker=event.worker.id, address=event.worker.address, reason=event.reason)
                self._lost.pop(event.worker.id, None)
                self._lost[event.worker.id] = (self._clock(), lost)
                while len(self._lost) > LOST_KEPT:
                    del self._lost[next(iter(self._lost))]

    def worker_lost(self, worker: str, reason: str, outputs: int, elsewhere: int) -> None:
        """A worker was declared lost with so many outputs; so many more have a copy elsewhere."""
        text = f"{worker}: {reason}; {counted(outputs, 'map output')} lost, {elsewhere} with a copy elsewhere"
        self.record("worker-lost", text, worker=worker, level=logging.ERROR)

    def reported(self, worker: str, before: pb.WorkerStatus, now: pb.WorkerStatus) -> None:
        """Record what is new between two heartbeats of a worker: that it is of another release than this master, and
        the data directories that were taken out or came back."""
        if now.release and now.release not in (before.release, __version__):
            text = f"{worker} is of release {now.release}, this master of {__version__}"
            self.record("worker-release", text, worker=worker, level=logging.WARNING)
        out = {disk.path: disk.out for disk in before.disks if disk.out}
        for disk in now.disks:
            if disk.out and disk.path not in out:
                text = f"{worker}: {disk.path} is taken out: {disk.out}"
                self.record("directory-out", text, worker=worker, level=logging.WARNING)
            elif not disk.out and disk.path in out:
                self.record("directory-back", f"{worker}: {disk.path} is in use again", worker=worker)
