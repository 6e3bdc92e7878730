"""Which workers there are: who has joined, who is alive, and where the next map output goes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from shuffle_api.clock import LOOK_SHARE, ServingClock, boot_seconds
from shuffle_api.errors import InvalidArgument, ShuffleError, StaleEpoch
from shuffle_api.registry.events import DRAINED, LostOutput, OutputMoved
from shuffle_api.registry.operations import LoseWorker, Operation, RegisterWorker
from shuffle_api.registry.state import Registry
from shuffle_api.values import WorkerInfo
from shuffle_server.master.history import History
from shuffle_server.master.master import Master
from shuffle_transport.proto import flight_shuffle_pb2 as pb

SUSPECT_SHARE = 0.4
"""Of the time after which a silent worker is declared lost: from then on it is the last choice. It is the first again
with its next heartbeat."""

HEARTBEATS_PER_TIMEOUT = 6
SLOWEST_HEARTBEAT = 2.0
SURE_HEARTBEATS = 3
"""A worker with a heartbeat within so many periods is there: others may delete copies that it also holds."""

DRAINED_REMEMBERED = 1000

FULL_BYTES = 256 << 20  # a worker with less free space is chosen when there is no other


@dataclass(slots=True)
class WorkerRecord:
    """A worker as the master sees it. `info.free_bytes` and `status` are those of its last heartbeat."""

    info: WorkerInfo
    seen: float  # when its last heartbeat came, on the clock that counts silence
    sure: float  # the same, counting every second
    status: pb.WorkerStatus = field(default_factory=pb.WorkerStatus)
    placed: int = 0  # outputs placed there after its last heartbeat
    draining: bool = False
    local: bool = False  # in the master's own process: alive as long as that is

    @property
    def load(self) -> int:
        """Pushes and pulls under way, and those that are about to come."""
        return self.status.open_pushes + self.status.open_pulls + self.placed


class Membership:
    """The workers of one master. Thread-safe.

    :param silent_seconds: a worker of which nothing was heard for so long is declared lost, with all that lies there.
    :param history: where joins, drains and losses are recorded.
    :param served: a clock that runs while heartbeats are received; None: they always are.
    """

    def __init__(
        self,
        master: Master,
        silent_seconds: float,
        *,
        clock: Callable[[], float] = boot_seconds,
        served: Callable[[], float] | None = None,
        history: History | None = None,
    ) -> None:
        self._history = History() if history is None else history
        self._master, self.silent_seconds = master, silent_seconds
        self._clock, self._every_second = ServingClock(LOOK_SHARE * silent_seconds, served or clock), clock
        # Joins and losses are decided one after the other, the registry's answer included.
        self._changes = threading.Lock()
        self._lock = threading.Lock()  # of the table
        # After a restart the master has no heartbeats yet: each worker counts as seen just now.
        self._records = {info.id: WorkerRecord(info, *self._times()) for info in master.registry.workers()}
        self._past_pushed = self._past_pulled = 0  # by workers that have restarted or left
        self._drained: dict[str, None] = {}  # ids of workers that have left, the last ones

    def join(self, info: WorkerInfo, *, local: bool = False, draining: bool = False) -> bool:
        """A worker is there, or back; whether the registry counted on it until now.

        :param draining: it is about to leave, as it was told by an older epoch of the master.

        :raises StaleEpoch: a later incarnation of this worker has joined.
        """
        with self._changes:
            with self._lock:
                former = self._records.get(info.id)
            if former is not None and former.info.incarnation > info.incarnation:
                raise StaleEpoch(
                    f"worker {info.id} has joined as incarnation {former.info.incarnation} since {info.incarnation}",
                    remedy="stop this one: two processes have the same worker id, from a copied data directory",
                    worker=info.id,
                )
            self._master.apply(RegisterWorker(info))
            record = WorkerRecord(info, *self._times(), local=local, draining=draining)
            if former is not None and former.info.incarnation == info.incarnation:
                record.draining |= former.draining
            self._drained.pop(info.id, None)
            with self._lock:
                self._leave_behind(former)
                self._records[info.id] = record
            self._record_join(former, info)
            return former is not None

    def _record_join(self, former: WorkerRecord | None, info: WorkerInfo) -> None:
        self._history.joined(info.id)
        known = former is not None and (former.info.incarnation, former.info.address) == (
            info.incarnation,
            info.address,
        )
        if info.port and not known:
            self._history.record("worker-joined", f"{info.id} at {info.address}", worker=info.id)

    def _leave_behind(self, former: WorkerRecord | None) -> None:
        """What a worker has taken in and served counts on when it restarts or leaves. To be called under the lock."""
        if former is not None:
            self._past_pushed += former.status.bytes_pushed
            self._past_pulled += former.status.bytes_pulled

    def traffic(self) -> tuple[int, int]:
        """Payload bytes that workers have taken in and served since this master started, or they, if later."""
        with self._lock:
            states = [record.status for record in self._records.values()]
            pushed = self._past_pushed + sum(state.bytes_pushed for state in states)
            return pushed, self._past_pulled + sum(state.bytes_pulled for state in states)

    def heartbeat(self, id: str, incarnation: int, free_bytes: int, status: pb.WorkerStatus) -> bool:
        """A heartbeat; whether the worker is to migrate what it holds, and leave.

        :raises StaleEpoch: the worker has not joined, or a later incarnation of it has.
        """
        with self._lock:
            record = self._records.get(id)
            if record is None or record.info.incarnation != incarnation:
                raise StaleEpoch(f"worker {id} incarnation {incarnation} has not joined", worker=id)
            record.info = replace(record.info, free_bytes=free_bytes)
            record.seen, record.sure = self._times()
            before, record.status, record.placed = record.status, status, 0
            draining = record.draining
        self._history.directories(id, before, status)
        return draining

    def expire(self) -> list[str]:
        """Give up the workers that have been silent for too long; their ids.

        :raises StorageFailed: that cannot be recorded now; it is tried again with the next call.
        """
        with self._changes:
            with self._lock:
                silent = [m for m in self._records.values() if self._silent(m)]
            lost = []
            for record in silent:
                with self._lock:
                    if not self._silent(record):
                        continue  # its heartbeat came while others were declared lost, which takes the disk's time
                    seconds = self._clock() - record.seen
                self._lose(record.info.id, f"silent for {seconds:.0f} s")
                lost.append(record.info.id)
            return lost

    def leave(self, id: str, reason: str) -> None:
        """Give a worker up at once. Outputs held only there are lost."""
        with self._changes:
            self._lose(id, reason)

    @property
    def beat_seconds(self) -> float:
        """How often workers send a heartbeat."""
        return min(SLOWEST_HEARTBEAT, self.silent_seconds / HEARTBEATS_PER_TIMEOUT)

    def seen_recently(self) -> set[str]:
        """The workers of which nobody need doubt that they are there: the last copy of an output may be theirs."""
        with self._lock:
            since = self._every_second() - SURE_HEARTBEATS * self.beat_seconds
            return {record.info.id for record in self._records.values() if record.local or record.sure >= since}

    def leave_empty(self, id: str, incarnation: int) -> None:
        """A drained worker goes.

        :raises StaleEpoch: it has not joined, or a later incarnation of it has.
        :raises InvalidArgument: map outputs lie only there, or elsewhere only at workers without a recent heartbeat.
        """
        sure = self.seen_recently() - {id}

        def check(registry: Registry, operation: Operation) -> None:
            only, _ = registry.only_at(id, sure)
            if only:
                raise InvalidArgument(
                    f"{only} map outputs lie only at worker {id}, or at workers that are silent now",
                    remedy="hand them over first, or wait until the others are heard of, or given up",
                )

        with self._changes:
            with self._master.lock:
                check_present(self._master, id, incarnation)
            (outcome,) = self._master.apply_all([LoseWorker(id, DRAINED)], check)
            if isinstance(outcome, ShuffleError):
                raise outcome
            with self._lock:
                self._leave_behind(self._records.pop(id, None))
                self._drained[id] = None
                while len(self._drained) > DRAINED_REMEMBERED:
                    del self._drained[next(iter(self._drained))]
            self._history.record("worker-left", f"{id}: {DRAINED}", worker=id)

    def has_left(self, id: str) -> bool:
        """Whether a worker was drained, and has not come back."""
        with self._lock:
            return id in self._drained

    def _lose(self, id: str, reason: str) -> None:
        events = self._master.apply(LoseWorker(id, reason))
        with self._lock:
            self._leave_behind(self._records.pop(id, None))
        if events:
            lost, moved = (sum(isinstance(event, kind) for event in events) for kind in (LostOutput, OutputMoved))
            self._history.worker_lost(id, reason, lost, moved)

    def drain(self, id: str) -> None:
        """Have a worker take nothing new, migrate what it holds, and leave.

        :raises InvalidArgument: there is none of this name, or it is the one in the master's process.
        """
        with self._lock:
            record = self._record(id)
            if record.local:
                raise InvalidArgument(
                    f"worker {id} is in the master's process",
                    remedy="run `flight-shuffle master`, and workers",
                )
            again, record.draining = record.draining, True
        if not again:
            self._history.record("worker-draining", f"{id} migrates what it holds, and leaves", worker=id)

    def record(self, id: str) -> WorkerRecord:
        """A worker. Raises InvalidArgument: there is none of this name."""
        with self._lock:
            return replace(self._record(id))

    def records(self) -> list[WorkerRecord]:
        """All workers that have joined and are not declared lost."""
        with self._lock:
            return [replace(record) for record in self._records.values()]

    def place(self, host: str = "", avoid: Collection[str] = ()) -> list[WorkerInfo]:
        """Where to put a map output that is written at `host`, best first; the first is counted on to get it.

        Draining workers are left out. Those that are silent, full, or to be avoided come last; then counts whether a
        worker is at the host, how busy it is, and its free space.
        """
        with self._lock:
            late = self._clock() - SUSPECT_SHARE * self.silent_seconds
            ordered = sorted(
                (record for record in self._records.values() if not record.draining),
                key=lambda m: (
                    m.info.id in avoid,
                    not m.local and m.seen < late,
                    m.info.free_bytes < FULL_BYTES,
                    bool(host) and m.info.host != host,
                    m.load,
                    -m.info.free_bytes,
                ),
            )
            if ordered:
                ordered[0].placed += 1
            return [record.info for record in ordered]

    def _times(self) -> tuple[float, float]:
        return self._clock(), self._every_second()

    def _silent(self, record: WorkerRecord) -> bool:
        return not record.local and self._clock() - record.seen > self.silent_seconds

    def _record(self, id: str) -> WorkerRecord:
        if id not in self._records:
            raise InvalidArgument(
                f"there is no worker {id!r}", remedy=f"known: {', '.join(sorted(self._records)) or 'none'}"
            )
        return self._records[id]


def check_present(master: Master, id: str, incarnation: int) -> None:
    """:raises StaleEpoch: the registry does not count on this life of the worker."""
    try:
        present = master.registry.worker(id).incarnation
    except ShuffleError:
        raise StaleEpoch(f"worker {id} has not joined, or was given up", worker=id) from None
    if present != incarnation:
        raise StaleEpoch(f"worker {id} is at incarnation {present}, this is {incarnation}", worker=id)
