"""A worker's membership in a cluster: it joins, tells what it holds, and goes on to tell that it is alive."""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from shuffle_api.backoff import Backoff
from shuffle_api.errors import (
    DeadlineExceeded,
    ServerUnreachable,
    ShuffleError,
    ShuttingDown,
    StaleEpoch,
    StorageFailed,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.periodic import PeriodicTask
from shuffle_api.values import WorkerInfo
from shuffle_server.journals import Journal
from shuffle_server.master.client import Identity
from shuffle_server.proto import registry_pb2 as pb
from shuffle_server.proto import registry_pb2_grpc as rpc
from shuffle_server.registry_names import task_name
from shuffle_server.store.identity import replace_text
from shuffle_transport import messages
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as control_pb
from shuffle_transport.security import Credentials

log = logging.getLogger(__name__)

T = TypeVar("T")

CALL_SECONDS = 10.0
STALE_ATTEMPTS = 3
INCARNATIONS = 1 << 32  # of one start: one a second for 136 years
LOSSES_AT_ONCE = 1000
SHUFFLES_AT_ONCE = 25  # in a heartbeat

AWAY = (ServerUnreachable, DeadlineExceeded, ShuttingDown)
"""What calls raise while a master is not there."""


class Unsettled(enum.IntEnum):
    """What is not over yet of joining again."""

    NOTHING = 0
    JOINING = 1  # the master may have counted this worker in, without its seeing the answer
    DROPPED = 2  # the files are gone, and the master may still send readers for some


class Holdings(Protocol):
    """A worker as it joins a registry, with its files as far as they are of applications of that one."""

    def info(self) -> WorkerInfo:
        """Asked for with every join: the address may change."""
        ...

    def status(self) -> control_pb.WorkerStatus:
        """Sent with every heartbeat."""
        ...

    def free_bytes(self) -> int: ...

    def journal(self) -> Journal:
        """In which the outputs here are recorded; one without an id if there are none."""
        ...

    def joined(self, journal: Journal, held: Journal, master: str) -> None:
        """The `master` has this journal, and `held` is that of the outputs here.

        :raises OtherJournal: it is another one.
        """
        ...

    def held_shuffles(self) -> list[ShuffleId]:
        """The shuffles of which there may be files."""
        ...

    def remove_shuffle(self, shuffle: ShuffleId) -> None:
        """It is over: its streams end, its files go; idempotent."""
        ...

    def drop_outputs(self) -> None:
        """The registry has lost the outputs committed here. Open pushes go on, and so do relayed streams."""
        ...


class Incarnations:
    """The numbers of a worker's lives, each above all earlier ones. Thread-safe.

    A start reserves INCARNATIONS of them in the file, which holds the last that is reserved. So a worker that begins
    anew while it runs needs no disk.

    :raises StorageFailed: the file cannot be read or written.
    """

    def __init__(self, file: Path) -> None:
        try:
            reserved = int(file.read_text()) if file.exists() else 0
            replace_text(file, str(reserved + INCARNATIONS))
        except ValueError as error:
            remedy = "write into it a number above any that it held: if in doubt, the nanoseconds since 1970"
            message = f"{file} holds no number: the last incarnation of this worker"
            raise StorageFailed(message, remedy=remedy) from error
        except OSError as error:
            raise StorageFailed(f"{file}: {error.strerror}", remedy="check the disk") from error
        self._lock, self._last = threading.Lock(), reserved

    def next(self) -> int:
        """One that nobody has had, for whichever session."""
        with self._lock:
            self._last += 1
            return self._last


class LossReports:
    """Outputs that are gone from a worker, until the master has been told. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reporting = threading.Lock()
        self._losses: dict[tuple[ShuffleId, MapAttempt], str] = {}

    def add(self, shuffle: ShuffleId, output: MapAttempt, reason: str) -> None:
        with self._lock:
            self._losses[shuffle, output] = reason

    def report(self, client: ControlClient, identity: Identity, only: ShuffleId | None) -> None:
        """All there are, if there is any of shuffle `only`. Raises what a call raises."""
        with self._lock:
            if not any(only in (None, shuffle) for shuffle, _ in self._losses):
                return
        with self._reporting:
            while True:
                with self._lock:
                    batch = list(self._losses.items())[:LOSSES_AT_ONCE]
                if not batch:
                    return
                lost = [
                    pb.LostOutput(shuffle=messages.key_of(id), output=messages.attempt_of(output), reason=reason)
                    for (id, output), reason in batch
                ]
                client.call("Lose", pb.LoseRequest(identity=identity.message(), outputs=lost))
                with self._lock:
                    for key, _ in batch:
                        self._losses.pop(key, None)


class HeartbeatContents:
    """What a heartbeat says of a worker: the status if that has changed, and some of its shuffles.

    :ivar under_way: the lock that is held while one is: none is sent beside the last request.
    """

    def __init__(self, holdings: Holdings) -> None:
        self.under_way = threading.Lock()
        self._holdings = holdings
        self._asked = 0  # of the shuffles held, those up to here were named in earlier heartbeats
        self._reported = control_pb.WorkerStatus()  # as the master has it

    def joined(self) -> None:
        """The master has no status yet."""
        self._reported = control_pb.WorkerStatus()

    def request(self, identity: Identity) -> tuple[pb.BeatRequest, control_pb.WorkerStatus]:
        """The next one, and the status that the master has once it has answered."""
        status = self._holdings.status()
        request = pb.BeatRequest(
            identity=identity.message(),
            free_bytes=self._holdings.free_bytes(),
            status=None if status == self._reported else status,
            shuffles=map(messages.key_of, self._some_held()),
        )
        return request, status

    def answered(self, status: control_pb.WorkerStatus) -> None:
        self._reported = status

    def _some_held(self) -> list[ShuffleId]:
        """Some of the shuffles of which there are files, others each time: whether they are over is asked in turn.

        Of shuffles with outputs committed here the master says so by itself.
        """
        held = self._holdings.held_shuffles()
        first = self._asked if self._asked < len(held) else 0
        self._asked = first + SHUFFLES_AT_ONCE
        return held[first : self._asked]


class MasterSession:
    """One worker at the master at `address`. `join`, then `start`, and `close` at the end. Thread-safe.

    :param registry: the name of the master's.
    """

    def __init__(
        self,
        address: str,
        incarnations: Incarnations,
        holdings: Holdings,
        credentials: Credentials,
        registry: str = "",
    ) -> None:
        self._name = registry
        self._client = ControlClient(
            address,
            client="flight-shuffle-worker",
            timeout=CALL_SECONDS,
            credentials=credentials,
            stub=rpc.ShuffleRegistryStub,
        )
        self._holdings = holdings
        self._incarnations, self._incarnation = incarnations, incarnations.next()
        self.registries: frozenset[str] = frozenset()  # the names of all that share the workers, as the master says
        self._identity = Identity()
        self._taking, self._unsettled = False, Unsettled.NOTHING
        self._draining = False
        self._on_drain: Callable[[], None] = lambda: None
        self._absence = ""  # why the last heartbeat was none
        self._joining = threading.Lock()
        self._losses = LossReports()
        self._contents = HeartbeatContents(holdings)
        self._task = PeriodicTask(task_name("membership", registry), self._heartbeat, 1.0)

    @property
    def identity(self) -> Identity:
        """Of the present membership."""
        return self._identity

    def check_taking(self) -> None:
        """:raises ShuttingDown: between two lives nothing is taken: what comes now could pass for lost later."""
        if not self._takes:
            raise ShuttingDown("the worker is about to join its master", remedy="retry; it will be back in a moment")

    def join(self, retry_for: float) -> None:
        """Join, for `retry_for` seconds if the master is away.

        :raises ServerUnreachable, DeadlineExceeded: it still is.
        :raises StaleEpoch: another process has this worker's id.
        """
        self._retried(self._join_first, retry_for)

    def _join_first(self) -> None:
        with self._joining:
            self._identity, _ = self._join()

    def _retried(self, ask: Callable[[], T], retry_for: float) -> T:
        """What it returns; a master that is away is asked again for so many seconds, unless this is closed."""
        backoff = Backoff(retry_for)
        while True:
            try:
                return ask()
            except AWAY:
                pause = backoff.pause()
                if pause is None or self._task.closing.wait(pause):
                    raise

    def rejoin(self, stale: Identity) -> None:
        """Join again, unless that has happened since one was `stale`. Raises what `join` raises.

        A worker that had been given up begins anew: its outputs are lost to the registry, so its files go.
        """
        with self._joining:
            if self._identity != stale or self._task.closing.is_set():
                return
            # If the answer to a join is lost, the master has counted this worker in, and knows it the next time.
            doubt = self._unsettled is not Unsettled.NOTHING
            self._unsettled = max(self._unsettled, Unsettled.JOINING)
            identity, known = self._join()
            if not known or (doubt and not self.held()):
                log.error("this worker had been given up by the master; it drops what it held and begins anew")
                self._unsettled = Unsettled.DROPPED
                self._holdings.drop_outputs()
                self._incarnation = self._incarnations.next()
                identity, _ = self._join()
            if self._unsettled is Unsettled.DROPPED:  # commits that were under way have been recorded after all
                for shuffle, output in self.held():
                    self.lose(shuffle, output, "the worker had been given up when it was committed")
            self._identity, self._unsettled = identity, Unsettled.NOTHING

    def settle(self) -> None:
        """Return when it is settled which life this is: until then what it holds may have to be dropped."""
        with self._joining:
            pass

    def _join(self) -> tuple[Identity, bool]:
        """Who this worker is now, and whether the master counted on it until now.

        :raises OtherJournal: the outputs here are of another registry than the master's; nothing has changed.
        """
        worker = messages.worker_message(self._holdings.info())
        worker.free_bytes, worker.draining = self._holdings.free_bytes(), self._draining
        held = self._holdings.journal()
        request = pb.JoinRequest(
            worker=worker,
            incarnation=self._incarnation,
            protocol=messages.PROTOCOL,
            oldest=messages.PROTOCOL,
            registry=self._name,
            journal=held.id,
            epoch=held.epoch,
        )
        reply: pb.JoinReply = self._client.call("Join", request)
        self._holdings.joined(Journal(reply.journal, reply.epoch), held, f"at {self._client.address}")
        self._task.period = reply.beat_seconds
        self._contents.joined()
        self.registries = frozenset(reply.registries)
        log.info("joined the master at %s, epoch %d", self._client.address, reply.epoch)
        return Identity(reply.epoch, worker.id, self._incarnation), reply.known

    def held(self) -> list[tuple[ShuffleId, MapAttempt]]:
        """What the master believes to lie here. Raises what a call raises."""
        found: list[tuple[ShuffleId, MapAttempt]] = []
        more = True
        while more:
            request = pb.HeldRequest(worker=self._identity.worker, first=len(found))
            reply: pb.HeldReply = self._client.call("Held", request)
            found += [(messages.shuffle_id(each.shuffle), messages.map_attempt(each.output)) for each in reply.outputs]
            more = reply.more
        return found

    def lose(self, shuffle: ShuffleId, output: MapAttempt, reason: str) -> None:
        """Report an output that is gone from here to the master soon; never waits for it."""
        self._losses.add(shuffle, output, reason)
        self._task.wake()

    def as_joined(self, call: Callable[[Identity], T], retry_for: float = 0.0) -> T:
        """What a call to the master answers. A master that was restarted does not count on this worker, and refuses it:
        then it joins again, which costs no output of it, and calls once more. Raises what `join` and the call raise.

        :param retry_for: seconds for which a master is asked again that is away, at the join or at the call.
        """
        return self._retried(lambda: self._as_joined(call), retry_for)

    def _as_joined(self, call: Callable[[Identity], T]) -> T:
        for _ in range(STALE_ATTEMPTS - 1):
            identity = self._identity
            try:
                return call(identity)
            except StaleEpoch:
                self.rejoin(identity)
        return call(self._identity)

    def report_losses(self, only: ShuffleId | None = None, retry_for: float = 0.0) -> None:
        """Report now what there is to report, if there is any of shuffle `only`. `retry_for`, and what it raises: as
        `as_joined`."""
        self.as_joined(lambda identity: self._losses.report(self._client, identity, only), retry_for)

    def when_drained(self, begin: Callable[[], None]) -> None:
        """Have `begin` called when the master wants this worker to migrate what it holds and to leave. Call before
        `start`."""
        self._on_drain = begin

    def drain(self) -> None:
        """Ask the master to want that: it sends nobody here any more. Raises what a call raises."""
        self._client.call("Drain", pb.DrainRequest(worker=self._identity.worker))
        self._draining = True

    def release(self, shuffle: ShuffleId, output: MapAttempt) -> bool:
        """Have the master send nobody here for an output; whether it does: another worker holds it, too.

        Raises what a call raises; then it may have been done.
        """
        held = pb.HeldOutput(shuffle=messages.key_of(shuffle), output=messages.attempt_of(output))

        def ask(identity: Identity) -> bool:
            request = pb.ReleaseRequest(identity=identity.message(), outputs=[held])
            reply: pb.ReleaseReply = self._client.call("Release", request)
            return bool(reply.released)

        return self.as_joined(ask)

    def leave(self) -> None:
        """Leave the master: nothing is committed here any more, and no heartbeat is shown.

        Raises InvalidArgument while map outputs lie here and nowhere else, and what a call raises: then all is as
        before.
        """
        with self._joining, self._contents.under_way:
            taking, self._taking = self._taking, False
            try:
                self._client.call("Leave", pb.LeaveRequest(identity=self._identity.message()))
                self._task.closing.set()
            finally:
                self._taking = taking and not self._task.closing.is_set()
        self._task.wake()

    def held_shuffles(self) -> list[ShuffleId]:
        """The shuffles of applications of this registry of which there may be files."""
        return self._holdings.held_shuffles()

    def start(self) -> None:
        """Take outputs, and send heartbeats in a thread of its own, from now on. Its outputs have been announced."""
        self._taking = True
        self._task.start()

    def absent(self) -> str:
        """Why the master may not count on this worker, empty while it does."""
        return self._absence if self._takes else "it has not joined its master"

    @property
    def _takes(self) -> bool:
        return self._taking and self._unsettled is not Unsettled.DROPPED

    def _heartbeat(self) -> None:
        identity = self._identity
        try:
            self._send_heartbeat(identity)
            self._absence = ""
        except StaleEpoch as error:
            if self._task.closing.is_set():
                return  # it has left
            log.warning("%s", error)
            self._absence = str(error)
            self._try_to_rejoin(identity)
        except ShuffleError as error:
            if not self._absence:
                log.warning("reports to the master are delayed: %s", error)
            self._absence = str(error)
            self._task.closing.wait(self._task.period)  # a loss that waits to be reported must not make this spin

    def _try_to_rejoin(self, stale: Identity) -> None:
        try:
            self.rejoin(stale)
        except ShuffleError as error:
            log.warning("could not join again: %s", error)
            self._task.closing.wait(self._task.period)

    def _send_heartbeat(self, identity: Identity) -> None:
        if self._unsettled is not Unsettled.NOTHING:
            self.rejoin(identity)
            identity = self._identity
        self.report_losses()
        request, status = self._contents.request(identity)
        with self._contents.under_way:
            if self._task.closing.is_set():
                return  # it has left: a heartbeat would be refused
            reply: pb.BeatReply = self._client.call("Beat", request)
        self._contents.answered(status)
        self._task.period = reply.beat_seconds or self._task.period
        for gone in reply.gone:
            self._holdings.remove_shuffle(messages.shuffle_id(gone))
        if reply.draining and not self._draining:
            self._draining = True
            self._on_drain()

    def close(self) -> None:
        """Stop; idempotent."""
        self._task.close()
        self._client.close()
