"""What a worker does for the outputs that it holds: makes lacking copies, makes room on disks, checks files."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from shuffle_api.errors import (
    AppExpired,
    InvalidArgument,
    MapOutputLost,
    ShuffleError,
    ShuttingDown,
    UnknownApp,
    UnknownShuffle,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.periodic import PeriodicTask
from shuffle_api.values import MapOutput, ShuffleSpec
from shuffle_server.observe.log_context import fields_of, log_context
from shuffle_server.registry_names import task_name
from shuffle_server.store.scrub import Checked, Pace
from shuffle_server.worker.replication import Replication
from shuffle_server.worker.worker import Worker
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Principal

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
LOW_BYTES = 256 << 20
"""With less room than this a worker is the last choice for new outputs (master/membership.py), and moves what it has
until there is twice as much."""

ROOM_FACTOR = 4  # so many times as much has who takes them: two that are short do not send outputs to and fro
SCRUB = "scrub"
PROGRESS_SECONDS = 1.0
MIN_RATE = 1 << 20  # a wait is as long as a block takes: with less, the end of the server would have to wait for it


class Releasing(Protocol):
    """What is asked of the session with one registry's master."""

    def held_shuffles(self) -> list[ShuffleId]: ...
    def release(self, shuffle: ShuffleId, output: MapAttempt) -> bool: ...


class Rebalancing:
    """Looks after the room of one worker, by what it holds for one registry: moves map outputs to workers with room,
    before this one has to refuse new ones.

    An output is copied, then the registry drops the copy here, then the file goes: at every moment the registry names
    workers that have it. Readers that come too late find it where it went.

    :param closing: set when the worker stops.
    """

    def __init__(self, worker: Worker, replication: Replication, session: Releasing, closing: threading.Event) -> None:
        self._worker, self._replication, self._session, self._closing = worker, replication, session, closing

    def look(self) -> int:
        """Move outputs if there is little room, and say how many. Raises ServerUnreachable, DeadlineExceeded."""
        wanted = 2 * LOW_BYTES - self._worker.free_bytes()
        if wanted <= LOW_BYTES or self._worker.draining:
            return 0
        moved = 0
        for spec, output in self._largest():
            if wanted <= 0 or self._closing.is_set():
                break
            if self._move(spec, output):
                moved += 1
                wanted -= output.totals.bytes
        return moved

    def _largest(self) -> list[tuple[ShuffleSpec, MapOutput]]:
        """What may be moved, the largest first: the least to do for the room."""
        found = [held for shuffle in self._session.held_shuffles() for held in self._worker.held(shuffle)]
        return sorted(found, key=lambda each: -each[1].totals.bytes)

    def _move(self, spec: ShuffleSpec, output: MapOutput) -> bool:
        if len(output.workers) <= spec.replicas:
            candidates = self._replication.candidates(spec.id, output.workers)
            roomy = [worker for worker in candidates if worker.free_bytes >= ROOM_FACTOR * LOW_BYTES]
            try:
                if self._replication.copy_to_one(spec.id, output.output, roomy) is None:
                    return False
            except MapOutputLost as error:
                self._worker.give_up(spec.id, output.output, error.message)
                return False
        if not self._session.release(spec.id, output.output):
            return False
        self._worker.drop_released(spec.id, output.output)
        return True


class OutputMaintenance:
    """Looks now and then, in a thread of its own from `start` to `close`."""

    def __init__(self, worker: Worker, replication: Replication, session: Releasing, registry: str = "") -> None:
        self._worker, self._replication, self._session = worker, replication, session
        self._task = PeriodicTask(task_name("upkeep", registry), self._look, LOOK_SECONDS)
        self._closing = self._task.closing
        self.rebalancing = Rebalancing(worker, replication, session, self._closing)

    def start(self) -> None:
        self._task.start()

    def close(self) -> None:
        """Stop after the output that is being copied; idempotent."""
        self._task.close()

    def _look(self) -> None:
        try:
            if moved := self.rebalancing.look():
                log.info("the disks are nearly full: %d map outputs were moved to other workers", moved)
            if copied := self.repair():
                log.info("%d map outputs lacked a copy, and have it now", copied)
        except ShuffleError as error:
            log.warning("copies cannot be made now: %s", error)

    def repair(self) -> int:
        """Have other workers hold what is here and lacks copies: their holder was given up, or was not there in time.

        How many have them now. Raises ServerUnreachable, DeadlineExceeded.
        """
        copied = 0
        for shuffle in self._session.held_shuffles():
            try:
                copied += self._repair(shuffle)
            except (UnknownShuffle, UnknownApp, AppExpired):
                continue  # it is over, its files go by themselves
        return copied

    def _repair(self, shuffle: ShuffleId) -> int:
        spec = self._worker.spec(shuffle)
        if spec.replicas == 1 or self._worker.draining:
            return 0
        own, copied = self._worker.info.id, 0
        for output in self._worker.outputs(shuffle):
            if output.worker != own or len(output.workers) >= spec.replicas:
                continue
            # As long as nobody is there, one question is enough for all of them.
            if self._closing.is_set() or not self._replication.candidates(shuffle, output.workers):
                return copied
            try:
                self._replication.ensure(spec, output)
            except MapOutputLost as error:
                self._worker.give_up(shuffle, output.output, error.message)
                continue
            if self._replication.lacks_copies(spec, output):  # who is there did not take it
                return copied
            copied += 1
        return copied


def scrub(worker: Worker, request: pb.ScrubRequest, principal: Principal) -> Iterator[pb.ScrubProgress]:
    """Check all outputs, and declare those that fail lost.

    How far it is, about each second and with each finding; the last message is `done`.

    An application's token scrubs what is its own. Raises InvalidArgument, PermissionDenied; while it runs ShuttingDown.
    """
    if 0 < request.rate < MIN_RATE:
        raise InvalidArgument(
            f"a scrub at {request.rate} bytes per second", remedy=f"use at least {MIN_RATE}, or 0 for no limit"
        )
    app = request.app or principal.app
    if app is not None:
        principal.check(app)
    return _run(worker, app, Pace(request.rate))


def _run(worker: Worker, app: str | None, pace: Pace) -> Iterator[pb.ScrubProgress]:
    progress = pb.ScrubProgress(worker=worker.info.id)
    said = time.monotonic()
    for checked in worker.check_all(app, pace):
        if worker.stopping:
            raise ShuttingDown(f"worker {worker.info.id} is stopping")
        progress.outputs += 1
        progress.blocks += checked.blocks
        progress.bytes += checked.bytes
        if checked.wrong:
            progress.findings.append(_give_up(worker, checked))
        if checked.wrong or time.monotonic() - said >= PROGRESS_SECONDS:
            yield progress
            said = time.monotonic()
            del progress.findings[:]
    progress.done = True
    yield progress


def _give_up(worker: Worker, checked: Checked) -> pb.ScrubFinding:
    with log_context(**fields_of(checked.shuffle, checked.output)):
        log.error("scrub: %s", checked.wrong)
    worker.give_up(checked.shuffle, checked.output, f"scrub: {checked.wrong}")
    return pb.ScrubFinding(
        shuffle=messages.key_of(checked.shuffle), output=messages.attempt_of(checked.output), reason=checked.wrong
    )
