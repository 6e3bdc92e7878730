"""The control service: requests become operations, values become replies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from shuffle_api.errors import (
    InvalidArgument,
    MapOutputLost,
    MapOutputNotWritten,
    Overloaded,
    ShuffleError,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry.operations import Operation, RegisterApp, RegisterShuffle, UnregisterApp, UnregisterShuffle
from shuffle_api.registry.state import Registry
from shuffle_api.values import WorkerInfo
from shuffle_server.master.history import History
from shuffle_server.master.master import Master
from shuffle_server.master.quota import NO_QUOTAS, Quotas
from shuffle_server.master.summary import summary
from shuffle_server.master.watching import MAX_WATCHES, Watchers
from shuffle_transport import messages
from shuffle_transport.codecs import get_codec
from shuffle_transport.proto import flight_shuffle_pb2 as pb

PAGE = 1000  # map outputs per reply of Locate, committed or lost
MAX_PAGE = 10_000
PLACE_GOOD_MS = 1000  # a worker that is about to leave is pushed to for so long, in vain, by clients that remember it
MAX_TEXT = 1000  # characters of a text that is for people
# A report is looked at for as long as workers take to read, in a thread that commits and heartbeats need too.
MAX_REPORTS = 4
REPORT_SECONDS = 60.0


class Workers(Protocol):
    """The workers as the control endpoint needs them."""

    def workers(self) -> Sequence[WorkerInfo]: ...
    def draining(self) -> Collection[str]:
        """The ids of those that take nothing new."""
        ...

    def seen_recently(self) -> Collection[str]:
        """The ids of those that have sent a heartbeat just now."""
        ...

    def place(self, host: str, avoid: Collection[str]) -> Sequence[WorkerInfo]:
        """Where to put a map output written at `host`, best first."""
        ...

    def traffic(self) -> tuple[int, int]:
        """Payload bytes taken in and served since the start."""
        ...

    def verify(self, worker: str, shuffle: ShuffleId, output: MapAttempt, timeout: float) -> str | None:
        """Why `worker` cannot serve this committed output, None when it can: all its blocks are read and checked.

        None also when it has not said so within `timeout` seconds.
        """
        ...


class ControlService:
    """`flight_shuffle.v1.ShuffleControl`. Every method returns its reply or raises a ShuffleError."""

    def __init__(
        self,
        master: Master,
        workers: Workers,
        version: str,
        heartbeat_seconds: int,
        states: Callable[[], Iterable[pb.WorkerStatus]] = tuple,
        quotas: Quotas = NO_QUOTAS,
        max_watches: int = MAX_WATCHES,
        history: History | None = None,
    ) -> None:
        """`states`: memory, disks and streams of the workers, for Status; `max_watches`: per application."""
        self.master, self._workers, self._version, self._heartbeat = master, workers, version, heartbeat_seconds
        self._states, self._quotas = states, quotas
        self._history = History() if history is None else history
        self._started = time.monotonic()
        self._reports = threading.BoundedSemaphore(MAX_REPORTS)
        self.watchers = Watchers(master, workers.workers, max_watches)

    def Hello(self, request: pb.HelloRequest) -> pb.HelloReply:
        oldest = request.oldest or request.protocol
        version = messages.negotiate(request.protocol, oldest, request.client or "the client")
        return pb.HelloReply(
            protocol=version,
            server=f"flight-shuffle/{self._version}",
            epoch=self.master.epoch,
            workers=self._worker_messages(),
            unix_seconds=time.time(),
        )

    def RegisterApp(self, request: pb.RegisterAppRequest) -> pb.RegisterAppReply:
        check_text("instance", request.instance)
        check_text("name", request.name)
        if self._register(RegisterApp(request.app, request.instance, request.name), request.app):
            called = f" {request.name!r}" if request.name else ""
            self._history.record("application-began", f"{request.app}{called}", app=request.app)
        return pb.RegisterAppReply(
            epoch=self.master.epoch, workers=self._worker_messages(), heartbeat_seconds=self._heartbeat
        )

    def Heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatReply:
        self.master.heartbeat(request.app)
        return pb.HeartbeatReply(epoch=self.master.epoch, workers=self._worker_messages())

    def UnregisterApp(self, request: pb.UnregisterAppRequest) -> pb.UnregisterAppReply:
        self.master.apply(UnregisterApp(request.app))
        return pb.UnregisterAppReply()

    def RegisterShuffle(self, request: pb.RegisterShuffleRequest) -> pb.RegisterShuffleReply:
        get_codec(request.codec)  # an unknown one is refused here, where its name is still in sight
        spec = messages.shuffle_spec(request)
        self._register(RegisterShuffle(replace(spec, id=spec.id.anew())))
        with self.master.lock:
            registered = self.master.registry.spec(spec.id.current()).id
        return pb.RegisterShuffleReply(
            epoch=self.master.epoch, workers=self._worker_messages(), generation=registered.generation
        )

    def _register(self, operation: Operation, app: str = "") -> bool:
        """Whether it registers an `app` that was not there. Raises what `Master.apply` raises, QuotaExceeded."""
        new = False

        def check(registry: Registry, checked: Operation) -> None:
            nonlocal new
            self._quotas.check(registry, checked)
            new = bool(app) and not registry.has_app(app)

        (outcome,) = self.master.apply_all([operation], check)
        if isinstance(outcome, ShuffleError):
            raise outcome
        return new

    def UnregisterShuffle(self, request: pb.UnregisterShuffleRequest) -> pb.UnregisterShuffleReply:
        if len(request.more) > MAX_PAGE:
            raise InvalidArgument(
                f"{len(request.more)} shuffles at once", remedy=f"unregister at most {MAX_PAGE} at a time"
            )
        first = messages.shuffle_id(request.shuffle)
        generations = request.generations or [0] * len(request.more)
        if len(generations) != len(request.more):
            raise InvalidArgument(
                f"{len(request.more)} further shuffles have {len(generations)} generations",
                remedy="name one for each of them",
            )
        ended = [first, *(ShuffleId(first.app, *each) for each in zip(request.more, generations, strict=True))]
        for outcome in self.master.apply_all([UnregisterShuffle(each) for each in ended]):
            if isinstance(outcome, ShuffleError):
                raise outcome
        return pb.UnregisterShuffleReply()

    def Place(self, request: pb.PlaceRequest) -> pb.PlaceReply:
        with self.master.lock:
            self.master.registry.spec(messages.shuffle_id(request.shuffle))
        found = self._workers.place(request.host, set(request.avoid))
        good_for = PLACE_GOOD_MS if _no_choice(found, request) else 0
        return pb.PlaceReply(workers=map(messages.worker_message, found), good_for_ms=good_for)

    def Locate(self, request: pb.LocateRequest) -> pb.LocateReply:
        shuffle = messages.shuffle_id(request.shuffle)
        limit = min(request.page or PAGE, MAX_PAGE)
        if limit < 0 or request.first_map < 0:
            raise InvalidArgument("a page size or first map below 0", remedy="ask for maps from 0 on")
        with self.master.lock:
            registry = self.master.registry
            spec = registry.spec(shuffle)
            outputs, lost, following = registry.located(shuffle, request.first_map, request.end_map or None, limit)
        self.master.settle()  # what this tells is not forgotten in a crash
        return pb.LocateReply(
            outputs=map(messages.output_message, outputs),
            next_map=following or 0,
            more=following is not None,
            workers=self._worker_messages(),
            partitions=spec.partitions,
            maps=spec.maps,
            codec=spec.codec,
            content=spec.content,
            lost=(messages.output_message(event.output) for event in lost),
            generation=spec.id.generation,
            replicas=spec.replicas,
        )

    def ReportLost(self, request: pb.ReportLostRequest) -> pb.ReportLostReply:
        shuffle = messages.shuffle_id(request.shuffle)
        check_text("reason", request.reason)
        if len(request.outputs) > MAX_PAGE:
            raise InvalidArgument(
                f"a report of {len(request.outputs)} outputs", remedy=f"report at most {MAX_PAGE} at a time"
            )
        if not self._reports.acquire(blocking=False):
            raise Overloaded(
                f"{MAX_REPORTS} reports of lost outputs are being looked at",
                remedy="report again later; the read itself has failed already",
                shuffle=shuffle,
            )
        try:
            return self._look_at(shuffle, request)
        finally:
            self._reports.release()

    def _look_at(self, shuffle: ShuffleId, request: pb.ReportLostRequest) -> pb.ReportLostReply:
        with self.master.lock:
            shuffle = self.master.registry.spec(shuffle).id  # workers know it by its whole id
        give_up = time.monotonic() + REPORT_SECONDS
        lost = []
        for output in map(messages.map_attempt, request.outputs):
            for worker in self._holders(shuffle, output):
                left = give_up - time.monotonic()
                if left <= 0:
                    raise Overloaded(
                        f"not all of {len(request.outputs)} reported outputs could be read within {REPORT_SECONDS:g} s",
                        remedy="report fewer at a time; what was found lost is recorded",
                        shuffle=shuffle,
                    )
                reason = self._workers.verify(worker, shuffle, output, left)
                if reason is not None:
                    self.master.lose(shuffle, output, f"{reason} (reported: {request.reason})", worker)
            if not self._holders(shuffle, output):
                lost.append(messages.attempt_of(output))
        return pb.ReportLostReply(lost=lost)

    def _holders(self, shuffle: ShuffleId, output: MapAttempt) -> tuple[str, ...]:
        """Where a committed attempt lies; nowhere when it is lost or no winner. Raises what `Registry.spec` raises."""
        with self.master.lock:
            try:
                found = self.master.registry.map_output(shuffle, output.map)
            except (MapOutputLost, MapOutputNotWritten):
                return ()
        return found.workers if found.output == output else ()

    def Status(self, request: pb.StatusRequest) -> pb.StatusReply:
        pushed, pulled = self._workers.traffic()
        apps, shuffles, following = summary(self.master, request)
        return pb.StatusReply(
            server=f"flight-shuffle/{self._version}",
            epoch=self.master.epoch,
            uptime_seconds=time.monotonic() - self._started,
            workers=self._worker_messages(),
            shuffles=shuffles,
            apps=apps,
            bytes_pushed=pushed,
            bytes_pulled=pulled,
            states=self._states(),
            next=following,
            lost=self._history.lost(),
            workers_lost=self._history.workers_lost,
            outputs_lost=self._history.outputs_lost,
        )

    def Events(self, request: pb.EventsRequest) -> pb.EventsReply:
        if request.limit < 0:
            raise InvalidArgument(f"a limit of {request.limit} events", remedy="ask for 0, which is all, or more")
        return pb.EventsReply(epoch=self.master.epoch, events=self._history.events(request.after, request.limit))

    def _worker_messages(self) -> list[pb.Worker]:
        found = [messages.worker_message(worker) for worker in self._workers.workers()]
        draining, seen_recently = self._workers.draining(), self._workers.seen_recently()
        for worker in found:
            worker.draining, worker.silent = worker.id in draining, worker.id not in seen_recently
        return found


def _no_choice(found: Sequence[WorkerInfo], request: pb.PlaceRequest) -> bool:
    """Whether neither load nor free space would make another one the first of these workers."""
    at_host = [worker for worker in found if worker.host == request.host]
    return not request.avoid and (len(found) == 1 or (bool(request.host) and at_host == [*found[:1]]))


def check_text(what: str, text: str) -> None:
    """Raises InvalidArgument for a long text: the registry keeps texts and the log repeats them."""
    if len(text) > MAX_TEXT:
        raise InvalidArgument(f"{what} has {len(text)} characters", remedy=f"use at most {MAX_TEXT}")
