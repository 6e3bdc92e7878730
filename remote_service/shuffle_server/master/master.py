"""The master: one registry, one lock, one log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from shuffle_api.errors import InvalidArgument, ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry.encoding import encode
from shuffle_api.registry.events import Event
from shuffle_api.registry.operations import (
    ExpireApps,
    LoseMapOutput,
    Operation,
    RegisterApp,
    RegisterShuffle,
    RegisterWorker,
)
from shuffle_api.registry.state import Registry
from shuffle_server.master.files import Directory, LocalDirectory
from shuffle_server.master.liveness import AppLiveness
from shuffle_server.master.log import Log, NoLog, OperationLog, Place
from shuffle_server.master.materializer import EVERY_OPERATIONS, Materializer
from shuffle_server.master.recovery import Recovered, recover
from shuffle_server.master.removals import Removals
from shuffle_server.master.snapshots import SnapshotInfo, read_snapshot, write_snapshot
from shuffle_transport.frames import SNAPSHOT, FileHeader, FrameFile

log = logging.getLogger(__name__)

Listener = Callable[[Event], None]
Outcome = tuple[Event, ...] | ShuffleError
Check = Callable[[Registry, Operation], None]
_EVENTLESS = RegisterApp | RegisterShuffle | RegisterWorker  # these change the registry and bring about no event


class Master:
    """The registry as a service for threads: operations are applied in one order, logged, then acknowledged.

    Listeners hear of every event after the operation is durable, outside the lock.

    :param directory: where log and snapshots are, recovered from there; None: a registry in memory, gone with it.
    :param sync: an acknowledged operation survives the machine; else it survives the process.
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
        directory: Path | Directory | None,
        *,
        sync: bool = False,
        snapshot_every: int = EVERY_OPERATIONS,
        sure: Callable[[], None] = lambda: None,
        liveness: AppLiveness | None = None,
    ) -> None:
        self._sure = sure
        self._liveness = AppLiveness() if liveness is None else liveness
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self._removals = Removals()
        self._closing = threading.Event()
        self._log: Log = NoLog()
        self._materializer: Materializer | None = None
        store = LocalDirectory(directory) if isinstance(directory, Path) else directory
        recovered = Recovered() if store is None else recover(store)
        self._registry = recovered.registry
        self.epoch = recovered.epoch = recovered.epoch + 1  # durable with the header of the log that begins now
        self._lsn = recovered.lsn
        if store is not None:
            self._log = OperationLog(store, recovered.lsn, self.epoch, sync=sync)
            self._materializer = Materializer(store, self._log, recovered, self._copy, snapshot_every)

    def subscribe(self, listener: Listener) -> None:
        """Have `listener` called with every event from now on."""
        self._listeners.append(listener)

    def apply(self, operation: Operation) -> tuple[Event, ...]:
        """Apply, make durable, tell the listeners; what came about.

        Raises what the registry raises, and then nothing has changed; StorageFailed when it could not be made durable:
        whether it has happened then shows later. An operation that changes nothing (it came a second time, or names
        what is not there) is not logged, so that whoever repeats it fills no disk. A shuffle is registered when the
        listeners have done with the removal of an earlier one of its id, or of an earlier application of that name.
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
        if self._log.failing:  # one more attempt, before anything else is promised
            self._log.wait(self._log.barrier())
        outcomes: list[Outcome] = []
        changes: list[bytes] = []
        wait = False
        with self._lock:
            for operation, record in zip(operations, records, strict=True):
                try:
                    if check is not None:
                        check(self._registry, operation)
                    outcomes.append(self._apply_one(operation, record, changes))
                except ShuffleError as error:
                    outcomes.append(error)
                wait = wait or not isinstance(operation, ExpireApps)
            # What is repeated, or the reason for a refusal, may still be on its way to the disk on behalf of others.
            place = self._append(changes) if changes else self._log.barrier() if wait else None
            events = [event for outcome in outcomes if not isinstance(outcome, ShuffleError) for event in outcome]
            removed = self._removals.begin(events)
        try:
            self._log.wait(place)
            self._sure()
            for event in events:
                for listener in self._listeners:
                    listener(event)
        finally:
            self._removals.end(removed)
        for operation in operations:
            if isinstance(operation, RegisterShuffle):
                self._removals.wait(operation.spec.id)
        return outcomes

    def _apply_one(self, operation: Operation, record: bytes, changes: list[bytes]) -> tuple[Event, ...]:
        """What came about; what is to be logged of it goes to `changes`."""
        known = self._knows(operation)
        events = self._registry.apply(operation)
        if isinstance(operation, RegisterApp):
            self._liveness.heard(operation.app)
        if events or (isinstance(operation, _EVENTLESS) and not known):
            changes.append(record)
        return events

    def _append(self, changes: list[bytes]) -> Place | None:
        self._lsn += len(changes)
        place = self._log.append(b"".join(changes), len(changes))
        if self._materializer is not None:
            self._materializer.note(len(changes))
        return place

    def _knows(self, operation: Operation) -> bool:
        """Whether this operation, one of those that bring about no event, has been applied before."""
        registry = self._registry
        try:
            if isinstance(operation, RegisterShuffle):
                return bool(registry.spec(operation.spec.id.current()))
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

        with self._lock:
            silent = self._liveness.silent([app.app for app in self._registry.apps()])
        if silent:
            self.apply_all([ExpireApps((app,)) for app in silent], check)

    def heartbeat(self, app: str) -> None:
        """A heartbeat. One that comes while its application is being expired keeps it, or is refused.

        :raises UnknownApp: it is not registered.
        :raises AppExpired: it was silent for too long.
        """
        with self._lock:
            self._registry.app(app)
            self._liveness.heard(app)
        self._sure()

    def idle(self, app: str) -> float:
        """Seconds since the last heartbeat of an application. To be called under `lock`."""
        return self._liveness.idle(app)

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
            registry, lsn, place = self._registry.copy(), self._lsn, self._log.barrier()
        self._log.wait(place)
        header = FileHeader(SNAPSHOT, self.epoch, lsn)
        return write_snapshot(LocalDirectory(path.parent), path.name, header, registry.operations(), self._closing)

    def restore(self, path: Path) -> SnapshotInfo:
        """Take the state from a snapshot; durable when this returns, all of it or nothing. Listeners are not told.

        :raises InvalidArgument: this registry has applications already, or the file is in another format.
        :raises StorageFailed: the file is damaged or cannot be read.
        """
        try:
            with FrameFile(LocalDirectory(path.parent), path.name, SNAPSHOT) as file:
                header, operations = file.header, list(read_snapshot(file))
        except OSError as error:
            raise InvalidArgument(f"the snapshot {path}: {error.strerror}", remedy="name a snapshot file") from error
        info = SnapshotInfo(header.lsn, header.epoch, len(operations))
        with self._lock:
            if self._registry.apps() or self._registry.shuffles():
                raise InvalidArgument("the registry is in use", remedy="restore into one with an empty data directory")
            operations += map(RegisterWorker, self._registry.workers())
            for operation in operations:
                self._registry.apply(operation)
            place = self._append([encode(operation) for operation in operations])
        self._log.wait(place)
        return info

    def _copy(self) -> tuple[Registry, Place | None]:
        with self._lock:
            return self._registry.copy(), self._log.switch()

    # ------------------------------------------------------------------------------------ queries

    @property
    def registry(self) -> Registry:
        """For queries under `lock` only."""
        return self._registry

    @property
    def lock(self) -> threading.Lock:
        return self._lock

    @property
    def failing(self) -> bool:
        """The last write of the log failed; it is tried again with the next operation."""
        return self._log.failing

    @property
    def given_up(self) -> ShuffleError | None:
        """Why nothing can be made durable any more, None while it can. Only another start helps."""
        return self._log.given_up

    def settle(self) -> None:
        """Return when all that a query could have seen until now is durable; at once when the disk is failing.

        :raises StorageFailed: another master may have taken this one's place.
        """
        if not self._log.failing:
            self._log.wait(self._log.barrier())
        self._sure()

    def close(self) -> None:
        """Write what is queued and close; call once."""
        self._closing.set()
        if self._materializer is not None:
            self._materializer.close()
        self._log.close()
