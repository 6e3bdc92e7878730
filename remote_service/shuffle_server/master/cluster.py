"""All workers of a master as one: what the control endpoint asks of them, whether they run in here or elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Protocol
from zlib import crc32

import numpy as np

from shuffle_api.errors import ShuffleError, StaleEpoch
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import WorkerInfo
from shuffle_server.master.membership import Membership
from shuffle_server.master.placement import Placed, Wish
from shuffle_server.master.worker_record import Tier, WorkerRecord
from shuffle_server.observe.aside import Aside
from shuffle_server.proto import registry_pb2
from shuffle_server.store.partition_sizes import PartitionSizes
from shuffle_server.worker.actions import PARTITION_SIZES, VERIFY
from shuffle_transport import messages
from shuffle_transport.flight_client import FlightClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import NO_CREDENTIALS, Credentials

log = logging.getLogger(__name__)

ASK_SECONDS = 0.1  # between two questions to the worker in this process, whose answer counts what it holds


class LocalWorker(Protocol):
    """The worker in the master's own process, if there is one."""

    @property
    def info(self) -> WorkerInfo: ...
    def free_bytes(self) -> int: ...
    def status(self) -> pb.WorkerStatus: ...
    def verify(self, shuffle: ShuffleId, output: MapAttempt) -> str | None: ...
    def partition_sizes(self, shuffle: ShuffleId, outputs: Sequence[MapAttempt], partitions: int) -> PartitionSizes: ...


class Cluster:
    """The workers as `ControlService` sees them.

    :param credentials: the cluster's, for what is asked of workers in other processes.
    :param registry: the name of the master's: two registries have no list of workers with the same epoch.
    """

    def __init__(
        self,
        membership: Membership,
        local: LocalWorker | None,
        credentials: Credentials = NO_CREDENTIALS,
        registry: str = "",
    ) -> None:
        self._membership, self._local, self._credentials = membership, local, credentials
        self._salt = crc32(registry.encode()) << 32
        self._epoch = membership.epoch ^ self._salt
        self._asked = -ASK_SECONDS
        self._whole = pb.WorkerChanges()  # as the last client without a list was sent it, for the next ones

    def workers(self) -> list[pb.Worker]:
        """All of them."""
        self._ask_local(ASK_SECONDS)
        sure = self._membership.seen_recently()
        return [_message(record, record.info.id not in sure) for record in self._membership.records()]

    def find(self, ids: Iterable[str]) -> list[pb.Worker]:
        """Those of these workers that are there."""
        return [_message(record, record.tier is Tier.SILENT) for record in self._membership.find(ids)]

    def changes(self, known: pb.WorkersKnown) -> pb.WorkerChanges:
        """What a client lacks that has this state of the list."""
        epoch, made = known.epoch ^ self._salt, self._whole
        version, whole, records, gone = self._membership.changes(epoch, known.version, made.version)
        if records is None:
            return made
        workers = [_message(record, record.tier is Tier.SILENT) for record in records]
        changes = pb.WorkerChanges(epoch=self._epoch, version=version, all=whole, workers=workers, gone=gone)
        if whole:
            self._whole = changes
        return changes

    def place(self, wish: Wish) -> Placed:
        self._ask_local(ASK_SECONDS)
        return self._membership.place(wish)

    def states(self) -> list[pb.WorkerStatus]:
        """What the workers told of themselves; those that have told nothing yet are left out."""
        self._ask_local()
        return [member.status for member in self._membership.records() if member.status.worker]

    def traffic(self) -> tuple[int, int]:
        self._ask_local()
        return self._membership.traffic()

    def verify(self, worker: str, shuffle: ShuffleId, output: MapAttempt, timeout: float) -> str | None:
        """A worker that cannot be asked is not said to have lost anything: it may be back in a moment."""
        if self._local is not None and worker == self._local.info.id:
            return Aside(partial(self._local.verify, shuffle, output), timeout, None)()
        request = registry_pb2.HeldOutput(shuffle=messages.key_of(shuffle), output=messages.attempt_of(output))
        try:
            reply = registry_pb2.Verified.FromString(self.act(worker, VERIFY, request.SerializeToString(), timeout))
        except ShuffleError as error:
            log.warning("worker %s could not be asked to verify %s of %s: %s", worker, output, shuffle, error)
            return None
        return reply.reason if reply.bad else None

    def partition_sizes(
        self, worker: str, shuffle: ShuffleId, outputs: Sequence[MapAttempt], partitions: int, timeout: float
    ) -> PartitionSizes:
        """The payload of partitions in outputs at a worker; of none of them where it cannot be asked."""
        nothing = PartitionSizes(0, np.zeros(partitions, np.int64))
        if self._local is not None and worker == self._local.info.id:
            return Aside(partial(self._local.partition_sizes, shuffle, outputs, partitions), timeout, nothing)()
        attempts = [messages.attempt_of(output) for output in outputs]
        request = registry_pb2.SizesRequest(shuffle=messages.key_of(shuffle), partitions=partitions, outputs=attempts)
        try:
            answer = self.act(worker, PARTITION_SIZES, request.SerializeToString(), timeout)
        except ShuffleError as error:
            log.warning("worker %s could not be asked for the partitions of %s: %s", worker, shuffle, error)
            return nothing
        reply = registry_pb2.SizesReply.FromString(answer)
        return PartitionSizes(reply.outputs, np.array(reply.bytes, np.int64))

    def act(self, worker: str, action: str, body: bytes, timeout: float) -> bytes:
        """Have a worker in another process do something. Raises what it answers, ServerUnreachable, InvalidArgument."""
        info = self._membership.record(worker).info
        client = FlightClient(info.address, timeout=timeout, credentials=self._credentials)
        try:
            return client.act(action, body)
        finally:
            client.close()

    def _ask_local(self, unless_within: float = 0.0) -> None:
        """The worker in this process sends its heartbeat, unless it did so that many seconds ago."""
        now = time.monotonic()
        if self._local is None or now - self._asked < unless_within:
            return
        self._asked = now
        info = self._local.info
        try:
            self._membership.heartbeat(info.id, info.incarnation, self._local.free_bytes(), self._local.status())
        except StaleEpoch as error:  # it has not joined yet
            log.debug("%s", error)


def _message(record: WorkerRecord, silent: bool) -> pb.Worker:
    worker = messages.worker_message(record.info)
    worker.draining, worker.silent = record.draining, silent
    return worker
