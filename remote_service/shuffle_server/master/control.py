"""The control service: requests become operations, values become replies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from shuffle_api.errors import (
    InvalidArgument,
    MapOutputLost,
    MapOutputNotWritten,
    Overloaded,
    ShuffleError,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry.events import LostOutput
from shuffle_api.registry.operations import Operation, RegisterApp, RegisterShuffle, UnregisterApp, UnregisterShuffle
from shuffle_api.registry.output_rows import OutputPage
from shuffle_api.registry.state import Registry
from shuffle_api.tables import printable
from shuffle_api.values import HOST, check_label
from shuffle_server.master.history import History
from shuffle_server.master.master import Master
from shuffle_server.master.placement import Placed, Wish
from shuffle_server.master.quota import NO_QUOTAS, Quotas
from shuffle_server.master.registries import ALONE, Registries
from shuffle_server.master.summary import summary
from shuffle_server.master.watching import MAX_WATCHES, Watchers
from shuffle_server.master.worker_checks import joined_worker
from shuffle_transport import messages
from shuffle_transport.codecs import get_codec
from shuffle_transport.proto import flight_shuffle_pb2 as pb

PAGE = 1000  # map outputs per reply of Locate, committed or lost
MAX_PAGE = 10_000
PLACE_GOOD_MS = 5000  # a worker that is about to leave is pushed to for so long, in vain, by clients that remember it
MAX_TEXT = 1000  # characters of a text that is for people
MAX_UNIX_SECONDS = 253_402_300_800.0  # the year 10000: times before it can be shown as dates
# A report is looked at for as long as workers take to read, in a thread that commits and heartbeats need too.
MAX_REPORTS = 4
REPORT_SECONDS = 60.0


_Listing = pb.HelloRequest | pb.RegisterAppRequest | pb.HeartbeatRequest | pb.RegisterShuffleRequest


class Workers(Protocol):
    """The workers as the control endpoint needs them."""

    def workers(self) -> list[pb.Worker]:
        """All of them."""
        ...

    def find(self, ids: Iterable[str]) -> list[pb.Worker]:
        """Those of these workers that are there."""
        ...

    def changes(self, known: pb.WorkersKnown) -> pb.WorkerChanges:
        """What a client lacks that has this state of the list."""
        ...

    def place(self, wish: Wish) -> Placed:
        """Where to put a map output."""
        ...

    def traffic(self) -> tuple[int, int]:
        """Payload bytes taken in and served since the start."""
        ...

    def verify(self, worker: str, shuffle: ShuffleId, output: MapAttempt, timeout: float) -> str | None:
        """Why `worker` cannot serve this committed output, None when it can: all its blocks are read and checked.

        None also when it has not said so within `timeout` seconds.
        """
        ...


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """The choices of a control service.

    :param states: memory, disks and streams of the workers, for Status.
    :param max_watches: of one application.
    :param copies_apart: the label in which the workers of two copies are to differ.
    :param registries: those that share the workers.
    """

    states: Callable[[], Iterable[pb.WorkerStatus]] = tuple
    quotas: Quotas = NO_QUOTAS
    max_watches: int = MAX_WATCHES
    copies_apart: str = HOST
    registries: Registries = ALONE


DEFAULTS = ControlOptions()


class ControlService:
    """`flight_shuffle.v1.ShuffleControl`. Every method returns its reply or raises a ShuffleError."""

    def __init__(
        self,
        master: Master,
        workers: Workers,
        version: str,
        heartbeat_seconds: int,
        options: ControlOptions = DEFAULTS,
        history: History | None = None,
    ) -> None:
        self.registries = options.registries
        self._apart = tuple(dict.fromkeys((options.copies_apart, HOST)))
        self.master, self._workers, self._version, self._heartbeat = master, workers, version, heartbeat_seconds
        self._states, self._quotas = options.states, options.quotas
        self._history = History() if history is None else history
        self._started = time.monotonic()
        self._reports = threading.BoundedSemaphore(MAX_REPORTS)
        self.watchers = Watchers(master, workers.find, options.max_watches)

    def Hello(self, request: pb.HelloRequest) -> pb.HelloReply:
        oldest = request.oldest or request.protocol
        version = messages.negotiate(request.protocol, oldest, request.client or "the client")
        return pb.HelloReply(
            protocol=version,
            server=f"flight-shuffle/{self._version}",
            epoch=self.master.epoch,
            unix_seconds=time.time(),
            registry=self.registries.own,
            **self._listed(request),
        )

    def RegisterApp(self, request: pb.RegisterAppRequest) -> pb.RegisterAppReply:
        check_text("instance", request.instance)
        check_text("name", request.name)
        only = check_label(request.only) if request.only else ""
        driver = _checked_driver(request)
        if self._register(RegisterApp(request.app, request.instance, request.name, only), request.app):
            called = f" {request.name!r}" if request.name else ""
            owned = printable(f" of {driver.user or '-'}@{driver.host or '-'}") if driver else ""
            self._history.record("application-began", f"{request.app}{called}{owned}", app=request.app)
        if driver:
            self.master.heartbeat(request.app, driver)
        return pb.RegisterAppReply(epoch=self.master.epoch, heartbeat_seconds=self._heartbeat, **self._listed(request))

    def Heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatReply:
        self.master.heartbeat(request.app, _checked_driver(request))
        return pb.HeartbeatReply(epoch=self.master.epoch, **self._listed(request))

    def alive(self, request: pb.HeartbeatRequest) -> None:
        """A heartbeat that is refused, because its token is over."""
        self.master.alive(request.app)

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
            epoch=self.master.epoch, generation=registered.generation, **self._listed(request)
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
        if len(request.avoid) > messages.MOST_AVOIDED:
            raise InvalidArgument(
                f"{len(request.avoid)} workers to avoid",
                remedy=f"name those that failed last, at most {messages.MOST_AVOIDED}",
            )
        shuffle = messages.shuffle_id(request.shuffle)
        avoid = frozenset(request.avoid)
        with self.master.lock:
            registry = self.master.registry
            only = registry.app(registry.spec(shuffle).id.app).only
            apart = (joined_worker(registry, request.copy_from), self._apart) if request.copy_from else None
        placed = self._workers.place(Wish(request.host, request.near, only, avoid, apart))
        first = placed.candidates[: placed.in_turn]
        lasting = placed.lasting and not any(each.info.id in avoid for each in first)
        return pb.PlaceReply(
            workers=(messages.worker_message(each.info) for each in placed.candidates),
            good_for_ms=PLACE_GOOD_MS if lasting else 0,
            in_turn=placed.in_turn,
        )

    def Locate(self, request: pb.LocateRequest) -> pb.LocateReply:
        shuffle = messages.shuffle_id(request.shuffle)
        limit = min(request.page or PAGE, MAX_PAGE)
        if limit < 0 or request.first_map < 0:
            raise InvalidArgument("a page size or first map below 0", remedy="ask for maps from 0 on")
        epoch, page, lost = self.master.epoch, OutputPage(), list[LostOutput]()
        with self.master.lock:
            registry = self.master.registry
            spec, version = registry.spec(shuffle), registry.version(shuffle)
            unchanged = version > 0 and (epoch, version) == (request.known_epoch, request.known_version)
            if not unchanged:
                page, lost = registry.page(shuffle, request.first_map, request.end_map or None, limit)
        self.master.settle()  # what this tells is not forgotten in a crash
        return pb.LocateReply(
            outputs=map(_located, page.numbers()),
            next_map=page.following or 0,
            more=page.following is not None,
            workers=self._workers.find(page.workers()),
            partitions=spec.partitions,
            maps=spec.maps,
            codec=spec.codec,
            content=spec.content,
            lost=(messages.output_message(event.output) for event in lost),
            generation=spec.id.generation,
            replicas=spec.replicas,
            epoch=epoch,
            version=version,
            unchanged=unchanged,
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
                        remedy="report fewer at a time; losses found so far are recorded",
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
            workers=self._workers.workers(),
            shuffles=shuffles,
            apps=apps,
            bytes_pushed=pushed,
            bytes_pulled=pulled,
            states=self._states(),
            next=following,
            lost=self._history.lost(),
            workers_lost=self._history.workers_lost,
            outputs_lost=self._history.outputs_lost,
            registry=self.registries.own,
            registries=self.registries.messages(),
        )

    def Events(self, request: pb.EventsRequest) -> pb.EventsReply:
        if request.limit < 0:
            raise InvalidArgument(f"a limit of {request.limit} events", remedy="ask for 0, which is all, or more")
        return pb.EventsReply(epoch=self.master.epoch, events=self._history.events(request.after, request.limit))

    def _listed(self, request: _Listing) -> dict[str, Any]:
        """The field of a reply that lists workers: the changes, or all for a client that does not say what it has."""
        if request.HasField("known"):
            return {"changes": self._workers.changes(request.known)}
        return {"workers": self._workers.workers()}


def check_text(what: str, text: str) -> None:
    """Raises InvalidArgument for a long text: the registry keeps texts and the log repeats them."""
    if len(text) > MAX_TEXT:
        raise InvalidArgument(f"{what} has {len(text)} characters", remedy=f"use at most {MAX_TEXT}")


def _checked_driver(request: pb.RegisterAppRequest | pb.HeartbeatRequest) -> pb.Driver | None:
    """A copy: a part of a request holds all of it in memory. None where there is none. Raises InvalidArgument."""
    if not request.HasField("driver"):
        return None
    driver = request.driver
    check_text("user", driver.user)
    check_text("host", driver.host)
    if not 0 <= driver.began < MAX_UNIX_SECONDS:
        raise InvalidArgument(
            f"began={driver.began} is out of range [0, {MAX_UNIX_SECONDS:.0f})", remedy="send unix seconds"
        )
    return pb.Driver(user=driver.user, host=driver.host, began=driver.began)


def _located(numbers: tuple[int, tuple[str, ...], int, int, int, int, int, int]) -> pb.MapOutput:
    map, place, attempt, size, raw_bytes, records, blocks, digest = numbers
    return pb.MapOutput(
        output=pb.MapAttempt(map=map, attempt=attempt),
        worker=place[0],
        totals=pb.Totals(blocks=blocks, bytes=size, raw_bytes=raw_bytes, records=records, digest=digest),
        copies=place[1:],
    )
