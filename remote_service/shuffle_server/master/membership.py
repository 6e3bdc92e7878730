"""Which workers there are: who has joined, who is alive, and where the next map output goes."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from shuffle_api.clock import LOOK_SHARE, ServingClock, boot_seconds
from shuffle_api.errors import InvalidArgument, ShuffleError, StaleEpoch
from shuffle_api.ids import ShuffleId
from shuffle_api.registry.events import DRAINED, Event, LostOutput, OutputMoved, ShuffleRemoved
from shuffle_api.registry.operations import LoseWorker, LoseWorkerOutputs, Operation, RegisterWorker
from shuffle_api.registry.state import Registry
from shuffle_api.values import WorkerInfo
from shuffle_server.master.history import History
from shuffle_server.master.liveness import Deadlines, HeartbeatTerms
from shuffle_server.master.master import Check, Master
from shuffle_server.master.placement import Placed, Placement, Wish
from shuffle_server.master.worker_checks import OUTPUT_IS_GONE, check_held_elsewhere, check_present
from shuffle_server.master.worker_record import FULL_BYTES, Tier, WorkerRecord, WorkerVersions
from shuffle_transport.proto import flight_shuffle_pb2 as pb

DRAINED_REMEMBERED = 1000
LOST_AT_ONCE = 1000  # outputs of a lost worker, while nothing else is decided
GONE_REMEMBERED = 10_000  # ended shuffles that one worker is yet to be told of; it asks for the others by itself
GONE_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Beat:
    """What a heartbeat is answered with.

    :ivar draining: the worker is to migrate what it holds, and leave.
    :ivar seconds: within which the next heartbeat is to come.
    :ivar gone: shuffles that are over, of which the worker may have files.
    """

    draining: bool
    seconds: float
    gone: list[ShuffleId]


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
        self._master, self._terms = master, HeartbeatTerms(silent_seconds)
        self._clock, self._every_second = ServingClock(LOOK_SHARE * silent_seconds, served or clock), clock
        # Joins and losses are decided one after the other, the registry's answer included.
        self._changes = threading.Lock()
        self._lock = threading.Lock()  # of the table
        self._records: dict[str, WorkerRecord] = {}
        self._placement = Placement(Random(secrets.randbits(64)), self._is_suspect, self._note)
        self._deadlines = Deadlines()
        self._versions = WorkerVersions()
        self._gone: dict[str, list[ShuffleId]] = {}
        # After a restart the master has no heartbeats yet: each worker counts as seen just now.
        known = master.registry.workers()
        for info in known:
            self._add(WorkerRecord(info, *self._times(), self._terms.beat_seconds(len(known))))
        master.subscribe(self._happened)
        self._pushed = self._pulled = 0
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
            record = WorkerRecord(info, *self._times(), self.beat_seconds, local=local, draining=draining)
            if former is not None and former.info.incarnation == info.incarnation:
                record.draining |= former.draining
            self._drained.pop(info.id, None)
            with self._lock:
                self._add(record)
            self._record_join(former, info)
            return former is not None

    def _add(self, record: WorkerRecord) -> None:
        """A worker counts from now on, in the place of the one that had its id. To be called under the lock."""
        id = record.info.id
        self._records[id] = record
        self._placement.put(record, self._tier(record))
        self._deadlines.add(id, self._terms.suspect_at(record))
        self._versions.note(id)

    def _remove(self, id: str) -> None:
        with self._lock:
            record = self._records.pop(id, None)
            self._gone.pop(id, None)
            if record is not None:
                self._placement.put(record, None)
                self._versions.note(id)

    def _tier(self, record: WorkerRecord) -> Tier | None:
        """Of a worker that has just sent a heartbeat."""
        if record.draining:
            return None
        return Tier.FULL if record.info.free_bytes < FULL_BYTES else Tier.ROOMY

    def _note(self, record: WorkerRecord) -> None:
        self._versions.note(record.info.id)

    def _record_join(self, former: WorkerRecord | None, info: WorkerInfo) -> None:
        self._history.joined(info.id)
        known = former is not None and (former.info.incarnation, former.info.address) == (
            info.incarnation,
            info.address,
        )
        if info.port and not known:
            self._history.record("worker-joined", f"{info.id} at {info.address}", worker=info.id)

    @property
    def epoch(self) -> int:
        """Of the master."""
        return self._master.epoch

    def traffic(self) -> tuple[int, int]:
        """Payload bytes that workers have taken in and served since this master started, or they, if later."""
        with self._lock:
            return self._pushed, self._pulled

    def heartbeat(self, id: str, incarnation: int, free_bytes: int, status: pb.WorkerStatus | None) -> Beat:
        """A heartbeat, with the state of the worker; None: it is that of the last one.

        :raises StaleEpoch: the worker has not joined, or a later incarnation of it has.
        """
        with self._lock:
            record = self._records.get(id)
            if record is None or record.info.incarnation != incarnation:
                raise StaleEpoch(f"worker {id} incarnation {incarnation} has not joined", worker=id)
            record.info = replace(record.info, free_bytes=free_bytes)
            record.seen, record.sure = self._times()
            before, record.placed = record.status, 0
            if status is not None:
                record.status = status
                self._pushed += max(0, status.bytes_pushed - before.bytes_pushed)
                self._pulled += max(0, status.bytes_pulled - before.bytes_pulled)
            self._retier(record, self._tier(record))
            record.beat_seconds = self.beat_seconds
            gone = self._gone.pop(id, [])
            if gone[GONE_AT_ONCE:]:
                self._gone[id] = gone[GONE_AT_ONCE:]
            answer = Beat(record.draining, record.beat_seconds, gone[:GONE_AT_ONCE])
        if status is not None:
            self._history.reported(id, before, status)
        return answer

    def alive(self, id: str, incarnation: int) -> None:
        """A heartbeat that is refused by others: the worker is the last choice, and is not lost.

        Nothing if it has not joined, or a later incarnation of it has. It may have joined an older epoch of the master.
        """
        with self._lock:
            record = self._records.get(id)
            if record is not None and record.info.incarnation == incarnation:
                record.refused = self._clock()

    def _retier(self, record: WorkerRecord, tier: Tier | None) -> None:
        former = record.tier
        if tier is not former:
            self._placement.put(record, tier)
            if Tier.SILENT in (tier, former):
                self._note(record)

    def _happened(self, event: Event) -> None:
        """A shuffle is over: the workers that hold outputs of it learn of it with their next heartbeat."""
        if isinstance(event, ShuffleRemoved) and event.workers:
            with self._lock:
                for id in event.workers:
                    if id in self._records:
                        gone = self._gone.setdefault(id, [])
                        if len(gone) < GONE_REMEMBERED:
                            gone.append(event.id)

    def expire(self) -> list[str]:
        """Give up the workers that have been silent for too long; their ids.

        :raises StorageFailed: that cannot be recorded now; it is tried again with the next call.
        """
        with self._changes:
            lost = []
            for id in self._overdue():
                with self._lock:
                    record = self._records.get(id)
                    if record is None or not self._silent(record):
                        continue  # its heartbeat came while others were declared lost, which takes the disk's time
                    seconds = self._clock() - record.alive
                self._lose(id, f"silent for {seconds:.0f} s")
                lost.append(id)
            return lost

    def _overdue(self) -> list[str]:
        """The workers that are silent for too long; those that are silent for a while become the last choice."""
        with self._lock:
            now, silent = self._clock(), []
            for id in list(self._deadlines.due(now)):
                record = self._records.get(id)
                if record is None or record.local:
                    continue
                if self._silent(record):
                    silent.append(id)
                    self._deadlines.add(id, now)  # again with the next look, should the loss not be recorded
                elif self._is_suspect(record):
                    if record.tier is not None:
                        self._retier(record, Tier.SILENT)
                    self._deadlines.add(id, record.alive + self._terms.timeout(record))
                else:
                    self._deadlines.add(id, self._terms.suspect_at(record))
            return silent

    def leave(self, id: str, reason: str) -> None:
        """Give a worker up at once. Outputs held only there are lost."""
        with self._changes:
            self._lose(id, reason)

    @property
    def beat_seconds(self) -> float:
        """How often a worker sends a heartbeat."""
        return self._terms.beat_seconds(len(self._records))

    def _is_suspect(self, record: WorkerRecord) -> bool:
        return not record.local and self._clock() > self._terms.suspect_at(record)

    def seen_recently(self, ids: Iterable[str] | None = None) -> set[str]:
        """The workers of which nobody need doubt that they are there, of these or of all: the last copy of an output
        may be theirs."""
        with self._lock:
            now = self._every_second()
            records = self._records.values() if ids is None else filter(None, map(self._records.get, ids))
            return {record.info.id for record in records if self._terms.is_sure(record, now)}

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
                    remedy="migrate them first, or wait until the others send a heartbeat or are lost",
                )

        with self._changes:
            with self._master.lock:
                check_present(self._master, id, incarnation)
            self._lose_outputs(id, DRAINED, partial(check_held_elsewhere, sure))
            (outcome,) = self._master.apply_all([LoseWorker(id, DRAINED)], check)
            if isinstance(outcome, ShuffleError):
                raise outcome
            self._remove(id)
            with self._lock:
                self._drained[id] = None
                while len(self._drained) > DRAINED_REMEMBERED:
                    del self._drained[next(iter(self._drained))]
            self._history.record("worker-left", f"{id}: {DRAINED}", worker=id)

    def has_left(self, id: str) -> bool:
        """Whether a worker was drained, and has not come back."""
        with self._lock:
            return id in self._drained

    def _lose(self, id: str, reason: str) -> None:
        """Give a worker up, with all that lies there."""
        found = self._lose_outputs(id, reason)
        events = self._master.apply(LoseWorker(id, reason))
        self._remove(id)
        if events:
            found.update(map(type, events))
            self._history.worker_lost(id, reason, found[LostOutput], found[OutputMoved])

    def _lose_outputs(self, id: str, reason: str, check: Check | None = None) -> Counter[type]:
        """Give up what lies at a worker, but for the last LOST_AT_ONCE outputs; the events by kind. Between the steps
        others have their turn.

        :raises ShuffleError: an output is not to be given up, or that cannot be recorded.
        """
        found: Counter[type] = Counter()
        while True:
            with self._master.lock:
                ranges = self._master.registry.ranges_at(id, LOST_AT_ONCE)
            if not ranges:
                return found
            step = [LoseWorkerOutputs(shuffle, id, reason, first, end) for shuffle, first, end in ranges]
            for outcome in self._master.apply_all(step, check):
                if not isinstance(outcome, ShuffleError):
                    found.update(map(type, outcome))
                elif not isinstance(outcome, OUTPUT_IS_GONE):
                    raise outcome

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
                self._placement.put(record, None)
                self._note(record)
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

    def place(self, wish: Wish) -> Placed:
        """Where to put a map output, at most three workers, best first.

        Draining workers are left out. Those to be avoided come last, then those that are silent, then full ones; then
        counts whether a worker is at the host, or has the label, how busy it is, and its free space.
        """
        with self._lock:
            return self._placement.pick(wish)

    def taking(self) -> int:
        """How many workers take map outputs."""
        return len(self._placement)

    @property
    def looked(self) -> int:
        """Workers that were looked at to place map outputs, in all."""
        return self._placement.looked

    def find(self, ids: Iterable[str]) -> list[WorkerRecord]:
        """Those of these workers that are there."""
        with self._lock:
            return [replace(self._records[id]) for id in ids if id in self._records]

    def changes(
        self, epoch: int, version: int, made: int = 0
    ) -> tuple[int, bool, list[WorkerRecord] | None, list[str]]:
        """What a client lacks that has this version of the list: the version it has then, whether these are all there
        are, the workers, and the ids of those that are gone. The workers are None where the caller has them all, of
        version `made`."""
        with self._lock:
            changed = self._versions.since(version) if epoch == self._master.epoch else None
            if changed is None and made == self._versions.version:
                return made, True, None, []
            ids = self._records if changed is None else changed
            present = [replace(self._records[id]) for id in ids if id in self._records]
            gone = [id for id in ids if id not in self._records]
            return self._versions.version, changed is None, present, gone

    def _times(self) -> tuple[float, float]:
        return self._clock(), self._every_second()

    def _silent(self, record: WorkerRecord) -> bool:
        return not record.local and self._clock() - record.alive > self._terms.timeout(record)

    def _record(self, id: str) -> WorkerRecord:
        if id not in self._records:
            raise InvalidArgument(
                f"there is no worker {id!r}", remedy=f"known: {', '.join(sorted(self._records)) or 'none'}"
            )
        return self._records[id]
