"""Those who watch a shuffle are told what it loses, as it happens (docs/protocol.md, Losses)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

import grpc

from shuffle_api.errors import Overloaded, ShuffleError, ShuttingDown, UnknownShuffle
from shuffle_api.ids import ShuffleId
from shuffle_api.registry.events import Event, LostOutput, OutputMoved, ShuffleRemoved, WorkerLost
from shuffle_api.values import WorkerInfo
from shuffle_server.master.master import Master
from shuffle_server.master.refusal import refuse
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb

MAX_WATCHES = 256
PAGE = 1000  # outputs in one message
MAX_WAITING = 100_000  # news that a slow watcher is kept
GONE_WORKERS = 1000  # whose addresses are remembered
LOOK_SECONDS = 60.0  # between two looks whether the watcher is still there; gRPC says so as a rule

News = LostOutput | OutputMoved


class Watch:
    """What one watcher is yet to be told. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._news: list[News] = []
        self._end: ShuffleError | None = None
        self._left = False

    def tell(self, event: News) -> None:
        with self._changed:
            self._news.append(event)
            if len(self._news) > MAX_WAITING:
                self._end = Overloaded(
                    f"{MAX_WAITING} messages wait for a watcher that takes none", remedy="watch again"
                )
                self._news.clear()
            self._changed.notify()

    def end(self, error: ShuffleError) -> None:
        """The last thing that the watcher is told."""
        with self._changed:
            self._end = self._end or error
            self._changed.notify()

    def leave(self) -> None:
        """The watcher is gone."""
        with self._changed:
            self._left = True
            self._changed.notify()

    def take(self, timeout: float) -> list[News]:
        """Up to a page of what is to be told; nothing when nothing comes for so long, or the watcher is gone.

        Raises the error that `end` was given, once everything before it is taken.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._news or self._end or self._left, timeout)
            taken, self._news = self._news[:PAGE], self._news[PAGE:]
            if not taken and self._end is not None and not self._left:
                raise self._end
            return taken


class Watchers:
    """Answers `Watch`, and listens to the master's events. Thread-safe; `end` ends all watches.

    :param workers: those that there are now, with their addresses.
    """

    def __init__(self, master: Master, workers: Callable[[], Iterable[WorkerInfo]]) -> None:
        self._master, self._workers = master, workers
        self._lock = threading.Lock()
        self._watches: dict[ShuffleId, set[Watch]] = {}
        self._count = 0
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
                watch.tell(event)
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

    def answer(self, request: pb.WatchRequest, context: grpc.ServicerContext) -> Iterator[pb.WatchReply]:
        """The method `Watch` of the control service."""
        watch = Watch()
        try:
            with self._master.lock:
                shuffle = self._master.registry.spec(messages.shuffle_id(request.shuffle)).id
            self._enter(shuffle, watch)
            try:
                if context.add_callback(watch.leave):
                    yield from self._replies(shuffle, watch, context)
            finally:
                self._leave(shuffle, watch)
        except ShuffleError as error:
            refuse(context, error)

    def _replies(self, shuffle: ShuffleId, watch: Watch, context: grpc.ServicerContext) -> Iterator[pb.WatchReply]:
        with self._master.lock:
            losses = self._master.registry.losses(shuffle)  # raises when it has ended just now
        self._master.settle()  # what this tells is not forgotten in a crash
        yield pb.WatchReply(epoch=self._master.epoch, generation=shuffle.generation)
        for at in range(0, len(losses), PAGE):
            yield self._message(shuffle.generation, losses[at : at + PAGE])
        while context.is_active():
            news = watch.take(LOOK_SECONDS)
            if news:
                yield self._message(shuffle.generation, news)

    def _message(self, generation: int, news: Iterable[News]) -> pb.WatchReply:
        present = {worker.id: worker for worker in self._workers()}
        reply = pb.WatchReply(epoch=self._master.epoch, generation=generation)
        for event in news:
            if isinstance(event, OutputMoved):
                reply.moved.append(messages.output_message(event.output))
                continue
            worker = event.output.worker
            info = present.get(worker) or self._gone.get(worker) or WorkerInfo(worker, "", 0)
            reply.lost.add(
                output=messages.attempt_of(event.output.output),
                worker=messages.worker_message(info),
                reason=event.reason,
            )
        return reply

    def _enter(self, shuffle: ShuffleId, watch: Watch) -> None:
        with self._lock:
            if self._closed:
                raise ShuttingDown("the master is stopping", remedy="watch again; it will be back")
            if self._count >= MAX_WATCHES:
                raise Overloaded(f"{MAX_WATCHES} watches are open", remedy="ask with Locate, or watch later")
            self._count += 1
            self._watches.setdefault(shuffle, set()).add(watch)

    def _leave(self, shuffle: ShuffleId, watch: Watch) -> None:
        with self._lock:
            self._count -= 1
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
