"""The workers that a process knows, by what control replies say of changes; those that get map outputs."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Iterable

from shuffle_api.values import WorkerInfo
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb

ListingReply = pb.HelloReply | pb.RegisterAppReply | pb.HeartbeatReply | pb.RegisterShuffleReply
FIRST_TURNS = 60


class WorkerTable:
    """Where workers are, and which of them are about to leave. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: dict[str, WorkerInfo] = {}
        self._draining: set[str] = set()
        self._known = pb.WorkersKnown()

    def known(self) -> pb.WorkersKnown:
        """For a request: the state of the list that this process has."""
        with self._lock:
            return pb.WorkersKnown(epoch=self._known.epoch, version=self._known.version)

    def learn(self, reply: ListingReply) -> None:
        """Take in what a reply to a request with `known` says; a server of an earlier release lists all workers."""
        if not reply.HasField("changes"):
            self.add(reply.workers)
            return
        changes = reply.changes
        with self._lock:
            if changes.epoch == self._known.epoch and changes.version < self._known.version:
                return  # a later one came first
            if changes.all:
                self._workers.clear()
                self._draining.clear()
            for id in changes.gone:
                self._workers.pop(id, None)
                self._draining.discard(id)
            self._add(changes.workers)
            self._known = pb.WorkersKnown(epoch=changes.epoch, version=changes.version)

    def add(self, workers: Iterable[pb.Worker]) -> None:
        """Take in some workers that a reply names."""
        with self._lock:
            self._add(workers)

    def _add(self, workers: Iterable[pb.Worker]) -> None:
        for worker in workers:
            self._workers[worker.id] = messages.worker_info(worker)
            (self._draining.add if worker.draining else self._draining.discard)(worker.id)

    def get(self, worker: str) -> WorkerInfo | None:
        with self._lock:
            return self._workers.get(worker)

    def draining(self) -> set[str]:
        """The workers that are about to leave."""
        with self._lock:
            return set(self._draining)


class Placements:
    """The master's last answer, for all map outputs of a process while it holds: candidates, of which
    outputs go to the good ones in turn. No I/O. Thread-safe.

    A worker that fails one output is left out for all; when no candidate is left the master is asked anew, with those
    that failed to be avoided.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._candidates: list[str] = []
        self._in_turn = 0
        self._next = random.randrange(FIRST_TURNS)  # processes that begin at once begin with different ones
        self._until = 0.0
        self._failed: dict[str, float] = {}  # and until when they are avoided

    def choose(self, avoid: Collection[str] = ()) -> str | None:
        """The worker for the next output; None: ask the master.

        :param avoid: workers that have just failed this output.
        """
        with self._lock:
            if self._clock() >= self._until:
                return None
            self._leave_out(avoid)
            if not self._candidates:
                return None
            self._next += 1
            return self._candidates[self._next % max(1, min(self._in_turn, len(self._candidates)))]

    def to_avoid(self, avoid: Collection[str]) -> list[str]:
        """For the request: the workers that have failed this output, or another one just now."""
        with self._lock:
            now = self._clock()
            self._failed = {id: until for id, until in self._failed.items() if until > now}
            return list(dict.fromkeys((*avoid, *self._failed)))[: messages.MOST_AVOIDED]

    def answered(self, reply: pb.PlaceReply) -> None:
        """Take in an answer of the master."""
        with self._lock:
            self._candidates = [worker.id for worker in reply.workers]
            self._in_turn = reply.in_turn
            self._until = self._clock() + reply.good_for_ms / 1000

    def failed(self, worker: str) -> None:
        """A worker did not take an output."""
        with self._lock:
            self._leave_out((worker,))

    def _leave_out(self, workers: Collection[str]) -> None:
        for worker in workers:
            if worker in self._candidates:
                if self._candidates.index(worker) < self._in_turn:
                    self._in_turn -= 1
                self._candidates.remove(worker)
                self._failed[worker] = self._until
