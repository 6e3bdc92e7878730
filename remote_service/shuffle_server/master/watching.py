"""Watchers of a shuffle receive its losses as they happen (docs/protocol.md, Losses).

A watch has no thread. One thread makes the messages of all of them; the next one of a watch when the last has gone out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from shuffle_api.errors import Overloaded, ShuffleError, ShuttingDown, UnknownShuffle
from shuffle_api.ids import ShuffleId, name_of
from shuffle_api.registry.events import Event, LostOutput, OutputMoved, ShuffleRemoved, WorkerLost
from shuffle_api.values import WorkerInfo
from shuffle_server.bounds import Bound
from shuffle_server.master.call_pool import CallPool, QueuedCall, Refusals
from shuffle_server.master.door import Visit
from shuffle_server.master.master import Master
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb

MAX_WATCHES = 1000  # of one application
ALL_WATCHES = 4  # times as many there may be in all
PAGE = 1000  # outputs in one message
MAX_WAITING = 100_000  # news that a slow watcher is kept
GONE_WORKERS = 1000  # whose addresses are remembered

OutputEvent = LostOutput | OutputMoved


class Watch:
    """What one watcher is yet to be sent. Thread-safe.

    :param ready: called, from any thread, when there is something to send and nothing under way.
    """

    def __init__(self, visit: Visit, ready: Callable[[Watch], None]) -> None:
        self.visit, self._ready = visit, ready
        self.shuffle: ShuffleId | None = None
        self._lock = threading.Lock()
        self._first: Sequence[OutputEvent] = ()
        self._pending: list[OutputEvent] = []
        self._end: ShuffleError | None = None
        self._busy = True  # until `begin`

    def publish(self, event: OutputEvent) -> None:
        with self._lock:
            self._pending.append(event)
            if len(self._pending) > MAX_WAITING:
                self._end = Overloaded(
                    f"{MAX_WAITING} messages wait for a watcher that takes none", remedy="watch again"
                )
                self._pending.clear()
        self.wake()

    def end(self, error: ShuffleError) -> None:
        """The last thing that the watcher is sent."""
        with self._lock:
            self._end = self._end or error
        self.wake()

    def begin(self, first: Sequence[OutputEvent]) -> None:
        """Send `first`, what has come meanwhile, and what comes."""
        self._first = first
        self.done(True)

    def done(self, sent: bool) -> None:
        """What was under way has been sent, or cannot be."""
        with self._lock:
            self._busy = not sent
        self.wake()

    def wake(self) -> None:
        with self._lock:
            if self._busy or not (self._first or self._pending or self._end):
                return
            self._busy = True
        self._ready(self)

    def take(self) -> Sequence[OutputEvent]:
        """Up to a page of what is to be sent. Raises the error that `end` was given, once everything before it is
        taken."""
        with self._lock:
            if self._first:
                taken, self._first = self._first[:PAGE], self._first[PAGE:]
                return taken
            taken, self._pending = self._pending[:PAGE], self._pending[PAGE:]
            if not taken and self._end is not None:
                raise self._end
            return taken


Find: TypeAlias = Callable[[Iterable[str]], Iterable[pb.Worker]]


class Watchers:
    """Answers `Watch`, and listens to the master's events. Thread-safe; `end` ends all watches.

    :param find: those of some workers that are there, with their addresses.
    :param each: most watches of one application.
    """

    def __init__(self, master: Master, find: Find, each: int = MAX_WATCHES) -> None:
        self._master, self._find = master, find
        self._lock = threading.Lock()
        self._watches: dict[ShuffleId, set[Watch]] = {}
        remedy = "ask with Locate, watch later, or raise --app-max-watches"
        self.bound: Bound[str] = Bound("watches are open", each, ALL_WATCHES * each, remedy=remedy)
        self._sender = CallPool("watches", 1, ALL_WATCHES * each + 1, Refusals("all watches are being served"))
        self._gone: dict[str, WorkerInfo] = {}
        self._closed = False
        master.subscribe(self)

    def __call__(self, event: Event) -> None:
        if isinstance(event, WorkerLost):
            with self._lock:
                self._gone[event.worker.id] = event.worker
                while len(self._gone) > GONE_WORKERS:
                    del self._gone[next(iter(self._gone))]
        elif isinstance(event, LostOutput | OutputMoved):
            for watch in self._watching(event.shuffle):
                watch.publish(event)
        elif isinstance(event, ShuffleRemoved) and (watches := self._watching(event.id)):
            error = self._why_over(event.id)
            for watch in watches:
                watch.end(error)

    def _watching(self, shuffle: ShuffleId) -> list[Watch]:
        with self._lock:
            return list(self._watches.get(shuffle, ()))

    def _why_over(self, shuffle: ShuffleId) -> ShuffleError:
        try:
            with self._master.lock:
                self._master.registry.spec(shuffle)
        except ShuffleError as error:
            return error
        return UnknownShuffle("the shuffle is over, another one has its number", shuffle=shuffle)

    def answer(self, visit: Visit, request: pb.WatchRequest) -> None:
        """The method `Watch` of the control service: begins a watch. Raises ShuffleError."""
        with self._master.lock:
            shuffle = self._master.registry.spec(messages.shuffle_id(request.shuffle)).id
        watch = Watch(visit, self._ready)
        app = name_of(shuffle.app)
        visit.enter(self.bound, app, f"application {app}")
        self._enter(shuffle, watch)
        try:
            with self._master.lock:
                losses = self._master.registry.losses(shuffle)  # raises when it has ended just now
            self._master.settle()  # what this tells is not forgotten in a crash
        except ShuffleError:
            self._leave(shuffle, watch)
            raise
        visit.when_over(partial(self._leave, shuffle, watch))
        first = pb.WatchReply(epoch=self._master.epoch, generation=shuffle.generation)
        visit.call.send(first.SerializeToString(), lambda sent: watch.begin(losses) if sent else None)

    def _ready(self, watch: Watch) -> None:
        self._sender.offer(QueuedCall("", partial(self._send, watch), watch.visit.refuse))

    def _send(self, watch: Watch) -> None:
        """Send one page of news, or the end. In a thread of its own."""
        assert watch.shuffle is not None
        try:
            message = self._message(watch.shuffle.generation, watch.take())
        except ShuffleError as error:
            watch.visit.refuse(error)
            return
        if not watch.visit.call.over:
            watch.visit.call.send(message.SerializeToString(), watch.done)

    def _message(self, generation: int, pending: Sequence[OutputEvent]) -> pb.WatchReply:
        lost = {event.output.worker for event in pending if isinstance(event, LostOutput)}
        present = {worker.id: worker for worker in self._find(lost)}
        reply = pb.WatchReply(epoch=self._master.epoch, generation=generation)
        for event in pending:
            if isinstance(event, OutputMoved):
                reply.moved.append(messages.output_message(event.output))
                continue
            worker = event.output.worker
            gone = self._gone.get(worker, WorkerInfo(worker, "", 0))
            reply.lost.add(
                output=messages.attempt_of(event.output.output),
                worker=present.get(worker) or messages.worker_message(gone),
                reason=event.reason,
            )
        return reply

    def _enter(self, shuffle: ShuffleId, watch: Watch) -> None:
        with self._lock:
            if self._closed:
                raise ShuttingDown("the master is stopping", remedy="watch again; it will be back")
            watch.shuffle = shuffle
            self._watches.setdefault(shuffle, set()).add(watch)

    def _leave(self, shuffle: ShuffleId, watch: Watch) -> None:
        with self._lock:
            self._watches[shuffle].discard(watch)
            if not self._watches[shuffle]:
                del self._watches[shuffle]

    def end(self) -> None:
        """End all watches, and refuse new ones; idempotent."""
        with self._lock:
            self._closed = True
            watches = [watch for each in self._watches.values() for watch in each]
        for watch in watches:
            watch.end(ShuttingDown("the master is stopping", remedy="watch again; it will be back"))
