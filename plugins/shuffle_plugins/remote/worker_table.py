"""The workers that a process knows: kept up to date by what control replies say of changes."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from shuffle_api.values import WorkerInfo
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb

ListingReply = pb.HelloReply | pb.RegisterAppReply | pb.HeartbeatReply | pb.RegisterShuffleReply


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
