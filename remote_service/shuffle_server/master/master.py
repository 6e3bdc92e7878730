"""The master: one log, and the registry as far as the log is durable.

There are two registries. Operations are decided by the one that is ahead: it has all that was appended to the log. What
the master answers comes from the other one, which the log brings up to date as records become durable. So nothing can
be answered that a restart would not have. When the log refuses what was appended, the first one is made anew from the
second: a refused operation has not happened, and cannot happen later.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from shuffle_api.errors import InvalidArgument, ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry.encoding import Decoder, encode
from shuffle_api.registry.events import AppRemoved, Event
from shuffle_api.registry.operations import (
    BeginJournal,
    ExpireApps,
    LoseMapOutput,
    Operation,
    RegisterApp,
    RegisterShuffle,
    RegisterWorker,
)
from shuffle_api.registry.state import Registry
from shuffle_server.journals import Journal
from shuffle_server.master.files import FlatDirectory, LocalDirectory
from shuffle_server.master.liveness import AppLiveness
from shuffle_server.master.log import WAIT_SECONDS, Log, NoLog, OperationLog, Place
from shuffle_server.master.materializer import EVERY_OPERATIONS, Materializer
from shuffle_server.master.recovery import Recovered, recover
from shuffle_server.master.snapshots import SnapshotInfo, read_snapshot, write_snapshot
from shuffle_transport.frames import SNAPSHOT, FileHeader, FrameFile
from shuffle_transport.freed_memory import give_back_freed_memory
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)

EXPIRED_AT_ONCE = 10  # applications, with all their shuffles, while nothing else is decided

Listener = Callable[[Event], None]
Outcome = tuple[Event, ...] | ShuffleError
Check = Callable[[Registry, Operation], None]
# These change the registry and bring about no event.
_EVENTLESS = frozenset((BeginJournal, RegisterApp, RegisterShuffle, RegisterWorker))


class Master:
    """The registry as a service for threads: operations are applied in one order, logged, then acknowledged.

    Listeners receive every event after the operation is durable, outside the lock.

    :param directory: where log and snapshots are, recovered from there; None: a registry in memory, gone with it.
    :param sync: an acknowledged operation survives the machine; else it survives the process.
    :param wait_seconds: after which an operation is not waited for any more: the disk hangs.
    :param snapshot_every: operations after which the state is written down and the log before it dropped.
    :param liveness: says which applications are silent.
    :param sure: raises when another master may have taken this one's place: then nothing is acknowledged or told.
    :raises StorageFailed: a file of the registry is damaged (it is named), or the disk is failing.
    :raises InvalidArgument: a file is in a format that this release does not read.
    """

    supports_snapshot: ClassVar[bool] = True
    """`snapshot` and `restore` work. (A registry that keeps its state elsewhere may leave that to others.)"""

    def __init__(
        self,
        directory: Path | FlatDirectory | None,
        *,
        sync: bool = False,
        snapshot_every: int = EVERY_OPERATIONS,
        wait_seconds: float = WAIT_SECONDS,
        sure: Callable[[], None] = lambda: None,
        liveness: AppLiveness | None = None,
    ) -> None:
        self._sure = sure
        self._liveness = AppLiveness() if liveness is None else liveness
        self._listeners: list[Listener] = [self._happened]
        self._closing = threading.Event()
        self._naming = threading.Lock()
        self._materializer: Materializer | None = None
        store = LocalDirectory(directory) if isinstance(directory, Path) else directory
        recovered = Recovered() if store is None else recover(store)
        self._registry = self._ahead = recovered.registry
        self.epoch = recovered.epoch = recovered.epoch + 1  # durable with the header of the log that begins now
        self._lsn = recovered.lsn
        if store is None:
            self._log: Log = NoLog()
            self._lock = self._log.order
            return
        self._lock = threading.Lock()
        self._ahead = self._registry.copy()
        self._log = OperationLog(store, recovered.lsn, self.epoch, sync=sync, state=self, timeout=wait_seconds)
        self._materializer = Materializer(store, self._log, recovered, self, snapshot_every)

    def subscribe(self, listener: Listener) -> None:
        """Have `listener` called with every event from now on."""
        self._listeners.append(listener)

    def _happened(self, event: Event) -> None:
        if isinstance(event, AppRemoved):
            self._liveness.ended(event.app)

    def apply(self, operation: Operation) -> tuple[Event, ...]:
        """Apply, make durable, notify the listeners; returns the events.

        Raises what the registry raises, and StorageFailed when it could not be made durable: then nothing has changed.
        DeadlineExceeded when it is not known whether it is durable: that shows later. An operation that changes nothing
        (it came a second time, or names what is not there) is not logged, so that whoever repeats it fills no disk.
        """
        (outcome,) = self.apply_all((operation,))
        if isinstance(outcome, ShuffleError):
            raise outcome
        return outcome

    def apply_all(self, operations: Sequence[Operation], check: Check | None = None) -> list[Outcome]:
        """What `apply` does, with one wait for all of them; each has an outcome of its own.

        `check` sees the registry as it is just before each operation, under the lock, and refuses it by raising a
        ShuffleError.
        """
        records = [encode(operation) for operation in operations]  # may raise: then nothing has happened
        outcomes: list[Outcome] = []
        changes: list[tuple[bytes, Operation]] = []
        with self._log.order:
            for operation, record in zip(operations, records, strict=True):
                try:
                    if check is not None:
                        check(self._ahead, operation)
                    outcomes.append(self._apply_one(operation, record, changes))
                except ShuffleError as error:
                    outcomes.append(error)
            # What is repeated, or the reason for a refusal, may still be on its way to the disk on behalf of others.
            place = self._append(changes) if changes else self._log.barrier()
        self._log.wait(place)
        self._sure()
        for outcome in outcomes:
            for event in () if isinstance(outcome, ShuffleError) else outcome:
                for listener in self._listeners:
                    listener(event)
        return outcomes

    def _apply_one(
        self, operation: Operation, record: bytes, changes: list[tuple[bytes, Operation]]
    ) -> tuple[Event, ...]:
        """Returns the events; appends the operation to `changes` if it is to be logged."""
        eventless = type(operation) in _EVENTLESS
        known = eventless and self._knows(operation)
        events = self._ahead.apply(operation)
        if isinstance(operation, RegisterApp):
            self._liveness.heard(operation.app)
        if events or (eventless and not known):
            changes.append((record, operation))
        return events

    def _append(self, changes: Sequence[tuple[bytes, Operation]]) -> Place | None:
        if self._materializer is None:
            self._lsn += len(changes)
            return None
        self._materializer.note(len(changes))
        return self._log.append(b"".join(record for record, _ in changes), [operation for _, operation in changes])

    # ------------------------------------------------------------------ what the log asks (`log.State`)

    def advance(self, operations: Sequence[Operation]) -> None:
        """These are durable: the answers are up to date with them."""
        with self._lock:
            for operation in operations:
                self._registry.apply(operation)
                if isinstance(operation, RegisterApp):  # before the answer it could not send a heartbeat
                    self._liveness.heard(operation.app)
            self._lsn += len(operations)

    def revert(self) -> None:
        """What is not durable will never be: it is forgotten. The log's `order` is held."""
        with self._lock:
            self._ahead = self._registry.copy()

    def durable(self) -> Iterable[bytes]:
        """The state that the answers come from, as encoded operations."""
        with self._lock:
            registry = self._registry.copy()
        return registry.records()

    def _knows(self, operation: Operation) -> bool:
        """Whether this operation, one of those that bring about no event, has been applied before."""
        registry = self._ahead
        try:
            if isinstance(operation, RegisterShuffle):
                return bool(registry.spec(operation.spec.id.current()))
            if isinstance(operation, BeginJournal):
                return bool(registry.journal)
            if isinstance(operation, RegisterApp):
                return registry.app(operation.app).instance == operation.instance
            if isinstance(operation, RegisterWorker):
                return registry.worker(operation.info.id) == operation.info
        except ShuffleError:
            return False
        return False

    def lose(self, shuffle: ShuffleId, output: MapAttempt, reason: str, worker: str = "") -> None:
        """Record that a committed output is gone at `worker`, or everywhere; a no-op when that is known, or its shuffle
        is gone too."""
        try:
            events = self.apply(LoseMapOutput(shuffle, output, reason, worker))
        except ShuffleError as error:
            log.info("not recorded as lost: %s", error)
            return
        if events:
            log.warning(
                "lost: map %d attempt %d of shuffle %d of app %s%s: %s",
                output.map,
                output.attempt,
                shuffle.shuffle,
                shuffle.app,
                f" at worker {worker}" if worker else "",
                reason,
            )

    def expire(self) -> None:
        """Remove the applications that are silent; to be called LOOKS_PER_TIMEOUT times in that time, or more often."""

        def check(registry: Registry, operation: Operation) -> None:
            if isinstance(operation, ExpireApps) and not all(map(self._liveness.is_silent, operation.apps)):
                raise InvalidArgument(f"a heartbeat of {operation.apps} came", remedy="let it live")

        with self._lock:  # what is not durable has not been answered, so nobody can have sent a heartbeat
            records = self._registry.apps()
        silent = self._liveness.silent([record.app for record in records])
        for at in range(0, len(silent), EXPIRED_AT_ONCE):
            self.apply_all([ExpireApps((app,)) for app in silent[at : at + EXPIRED_AT_ONCE]], check)

    def heartbeat(self, app: str, driver: pb.Driver | None = None) -> None:
        """A heartbeat. One that comes while its application is being expired keeps it, or is refused.

        :param driver: the sender, for people.
        :raises UnknownApp: it is not registered.
        :raises AppExpired: it was silent for too long.
        """
        refused: ShuffleError | None = None
        with self._log.order:
            try:
                self._ahead.app(app)
                self._liveness.heard(app, driver)
            except ShuffleError as error:
                refused = error
            place = None if refused is None else self._log.barrier()
        self._log.wait(place)
        self._sure()
        if refused is not None:
            raise refused

    def alive(self, app: str) -> None:
        """A heartbeat that is refused by others, and counts; nothing if its application is not registered."""
        with self._log.order:
            if self._ahead.has_app(app):
                self._liveness.heard(app)

    def idle(self, app: str) -> float:
        """Seconds since the last heartbeat of an application. To be called under `lock`."""
        return self._liveness.idle(app)

    def driver(self, app: str) -> pb.Driver | None:
        """What its client has sent to this process of its driver."""
        return self._liveness.driver(app)

    # ---------------------------------------------------------------------------------- snapshots

    def materialize(self) -> SnapshotInfo | None:
        """Write the state down and drop the log before it, now; None for a registry in memory.

        :raises StorageFailed: the disk is full or failing; nothing is lost.
        """
        return None if self._materializer is None else self._materializer.materialize()

    def snapshot(self, path: Path) -> SnapshotInfo:
        """Write the state, as it is at some moment of this call, to a file of its own, for `restore`.

        :raises StorageFailed: the disk is full or failing; there is no file then, or the one that was there before.
        """
        with self._lock:
            registry, lsn = self._registry.copy(), self._lsn
        header = FileHeader(SNAPSHOT, self.epoch, lsn)
        return write_snapshot(LocalDirectory(path.parent), path.name, header, registry.records(), self._closing)

    def restore(self, path: Path) -> SnapshotInfo:
        """Take the state from a snapshot; durable when this returns, all of it or nothing. Listeners are not told.

        :raises InvalidArgument: this registry has applications already, or the file is in another format.
        :raises StorageFailed: the file is damaged or cannot be read.
        """
        try:
            with FrameFile(LocalDirectory(path.parent), path.name, SNAPSHOT) as file:
                header, operations = file.header, list(read_snapshot(file, Decoder().decode))
        except OSError as error:
            raise InvalidArgument(f"the snapshot {path}: {error.strerror}", remedy="name a snapshot file") from error
        info = SnapshotInfo(header.lsn, header.epoch, len(operations))
        with self._log.order:
            if self._ahead.apps() or self._ahead.shuffles():
                raise InvalidArgument("the registry is in use", remedy="restore into one with an empty data directory")
            operations += map(RegisterWorker, self._ahead.workers())
            for operation in operations:
                self._ahead.apply(operation)
            place = self._append([(encode(operation), operation) for operation in operations])
        self._log.wait(place)
        return info

    def copy(self) -> tuple[Registry, Place | None]:
        with self._log.order:
            return self._ahead.copy(), self._log.switch()

    def deduplicate(self) -> None:
        with self._lock:
            shuffles = self._registry.shuffle_ids()
        shared = 0
        for id in shuffles:
            with self._log.order, self._lock:
                shared += self._ahead.share(id, self._registry)
        if shared:
            give_back_freed_memory()

    # ------------------------------------------------------------------------------------ queries

    def journal(self) -> Journal:
        """Which journal this registry is kept in. The first question gives it an id, and raises what `apply` raises."""
        with self._naming:
            if not self._registry.journal:
                self.apply(BeginJournal(secrets.token_hex(8)))
                self.materialize()  # workers keep it, so it survives the machine whatever `sync` says
        return Journal(self._registry.journal, self.epoch)

    @property
    def registry(self) -> Registry:
        """What is durable, for queries under `lock` only."""
        return self._registry

    @property
    def lock(self) -> threading.Lock:
        return self._lock

    @property
    def failing(self) -> bool:
        """The last write of the log failed, and its operations were refused."""
        return self._log.failing

    @property
    def given_up(self) -> ShuffleError | None:
        """Why nothing can be made durable now, None while it can."""
        return self._log.given_up

    def settle(self) -> None:
        """Return when a query may be answered.

        :raises StorageFailed: another master may have taken this one's place.
        """
        self._sure()

    def close(self) -> None:
        """Write what is queued and close; call once."""
        self._closing.set()
        if self._materializer is not None:
            self._materializer.close()
        self._log.close()
