"""The streams on which workers commit: bounded, each with one request under way, and without a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from shuffle_api.errors import ShuffleError, ShuttingDown
from shuffle_server.bounds import Bound
from shuffle_server.master.committing import Asked, Committer
from shuffle_server.master.door import Visit
from shuffle_server.proto import registry_pb2 as pb

NAME = "Commits"
MOST_STREAMS = 1000
EACH_STREAMS = 250  # of one host


class CommitStreams:
    """The method `Commits`. Thread-safe; `end` ends the streams."""

    name = NAME
    kind = pb.CommitRequest

    def __init__(self, committer: Committer, most: int = MOST_STREAMS) -> None:
        self.committer = committer
        self.bound: Bound[str] = Bound("streams are open", EACH_STREAMS, most, remedy="end some, or try again later")
        self.lock = threading.Lock()
        self.ending = False
        self._open: set[_IncomingStream] = set()

    def answer(self, data: bytes) -> bytes:
        """The encoded reply to one encoded request, now. Raises ShuffleError."""
        self._check_open()
        return self.committer.answer(data)

    def take(self, visit: Visit, data: bytes) -> None:
        visit.principal.check_member("streams of commits")  # in whose name, each request says
        visit.enter(self.bound, visit.host, f"host {visit.host}")
        stream = _IncomingStream(self, visit)
        with self.lock:
            self._check_open()
            self._open.add(stream)
        visit.when_over(partial(self._forget, stream))
        stream.received(data)

    def _check_open(self) -> None:
        if self.ending:
            raise ShuttingDown("the master is stopping", remedy="commit again; it will be back")

    def _forget(self, stream: _IncomingStream) -> None:
        with self.lock:
            self._open.discard(stream)

    def end(self) -> None:
        """End those that wait for a request now, the others with their next reply."""
        with self.lock:
            self.ending = True
            idle = [stream for stream in self._open if not stream.busy]
        for stream in idle:
            stream.finish()


class _IncomingStream:
    """One stream. `busy`: a request of it has not been answered."""

    __slots__ = ("_asked", "_streams", "_visit", "busy", "finish")

    def __init__(self, streams: CommitStreams, visit: Visit) -> None:
        self._streams, self._visit = streams, visit
        self.finish: Callable[..., bool] = visit.call.finish
        self.busy = False
        self._asked = 0.0

    def received(self, data: bytes | None) -> None:
        """In the wire's thread."""
        if data is None:
            self.finish()
            return
        self.busy = True
        self._asked = time.monotonic()
        self._streams.committer.ask(Asked(data, self._answered, self._visit.principal))

    def _answered(self, answer: bytes | ShuffleError) -> None:
        """In the thread that commits."""
        visit = self._visit
        visit.door.observer.answered(NAME, time.monotonic() - self._asked)
        if isinstance(answer, ShuffleError):
            visit.refuse(answer)
            return
        with self._streams.lock:
            last = self._streams.ending
            if not last and not visit.call.over:
                self.busy = False
                visit.call.exchange(answer, self.received)
        if last:
            self.finish(message=answer)
