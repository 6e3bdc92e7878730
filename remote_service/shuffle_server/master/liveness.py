"""Heartbeats of applications and workers, and how long either may be silent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from shuffle_api.clock import LOOK_SHARE, ServingClock, boot_seconds
from shuffle_server.master.worker_record import WorkerRecord
from shuffle_transport.proto import flight_shuffle_pb2 as pb

SUSPECT_SHARE = 0.4
"""Of the time after which a silent worker is declared lost: from then on it is the last choice. It is the first again
with its next heartbeat."""

HEARTBEATS_PER_TIMEOUT = 6
SLOWEST_HEARTBEAT = 2.0
HEARTBEATS_PER_SECOND = 1000
"""Of all workers together: with more than twice as many workers each sends them less often."""

SURE_HEARTBEATS = 3
"""A worker with a heartbeat within so many periods is there: others may delete copies that it also holds."""


class AppLiveness:
    """The last heartbeats of applications, and the drivers that send them. Thread-safe.

    In memory, so a restart forgives all silence, and the next heartbeats name the drivers again.

    :param silent_seconds: an application that sends no heartbeat for so long is silent.
    """

    def __init__(self, silent_seconds: float = 600.0, source: Callable[[], float] = boot_seconds) -> None:
        self.silent_seconds = silent_seconds
        self._clock = ServingClock(LOOK_SHARE * silent_seconds, source)
        self._seen: dict[str, float] = {}
        self._drivers: dict[str, pb.Driver] = {}
        self._lock = threading.RLock()

    def heard(self, app: str, driver: pb.Driver | None = None) -> None:
        """It has sent a heartbeat, or has registered. Without `driver` its driver is the one that it had."""
        with self._lock:
            self._seen[app] = self._clock()
            if driver is not None:
                self._drivers[app] = driver

    def ended(self, app: str) -> None:
        """It is not registered."""
        with self._lock:
            self._seen.pop(app, None)
            self._drivers.pop(app, None)

    def driver(self, app: str) -> pb.Driver | None:
        """None for one of which this process has no driver yet."""
        with self._lock:
            return self._drivers.get(app)

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
                    self.ended(app)
        for app in live:
            if app not in seen:
                with self._lock:
                    self._seen.setdefault(app, now)
        return [app for app in live if now - seen.get(app, now) > self.silent_seconds]


@dataclass(frozen=True, slots=True)
class HeartbeatTerms:
    """With `workers` workers, each sends a heartbeat every max(2 s, workers / 1000 s), or six of them in
    `silent_seconds` if that is more often. A worker is lost after `silent_seconds`, and not before six of the periods
    that it was told last: nobody is lost because the cluster has grown or shrunk.
    """

    silent_seconds: float

    def beat_seconds(self, workers: int) -> float:
        base = min(SLOWEST_HEARTBEAT, self.silent_seconds / HEARTBEATS_PER_TIMEOUT)
        return max(base, workers / HEARTBEATS_PER_SECOND)

    def timeout(self, record: WorkerRecord) -> float:
        """After so many seconds of silence a worker is lost."""
        return max(self.silent_seconds, HEARTBEATS_PER_TIMEOUT * record.beat_seconds)

    def suspect_at(self, record: WorkerRecord) -> float:
        """From then on it is the last choice."""
        return record.seen + SUSPECT_SHARE * self.timeout(record)

    def is_sure(self, record: WorkerRecord, now: float) -> bool:
        """Whether nobody need doubt that a worker is there; `now` on the clock that counts every second."""
        return record.local or record.sure >= now - SURE_HEARTBEATS * record.beat_seconds


class Deadlines:
    """When each of many members is to be looked at again: those that are due are found without a look at the others.

    Each id has one time, so adding and finding are O(log members). Not thread-safe.

    A time is not changed while it waits: one that is due too early is added again.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._waiting: set[str] = set()

    def add(self, id: str, due: float) -> None:
        """Have an id found when it is due, unless it waits already."""
        if id not in self._waiting:
            self._waiting.add(id)
            heappush(self._heap, (due, id))

    def due(self, now: float) -> Iterator[str]:
        """The ids that are due, which do not wait any more."""
        while self._heap and self._heap[0][0] <= now:
            _, id = heappop(self._heap)
            self._waiting.discard(id)
            yield id
