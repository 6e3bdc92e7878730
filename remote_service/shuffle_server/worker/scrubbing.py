"""The action `scrub` of a worker: it checks all its outputs, and declares those that fail lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

from shuffle_api.errors import InvalidArgument, ShuttingDown
from shuffle_server.observe.log_context import fields_of, log_context
from shuffle_server.store.scrub import Checked, Pace
from shuffle_server.worker.worker import Worker
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Principal

ACTION = "scrub"
PROGRESS_SECONDS = 1.0
MIN_RATE = 1 << 20  # a wait is as long as a block takes: with less, the end of the server would have to wait for it

log = logging.getLogger(__name__)


def scrub(worker: Worker, request: pb.ScrubRequest, principal: Principal) -> Iterator[pb.ScrubProgress]:
    """How far it is, about each second and with each finding; the last message is `done`.

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
