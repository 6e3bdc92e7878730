"""What a worker does for what it holds of a registry while nobody asks: it makes lacking copies, and room on disks."""

from __future__ import annotations

import logging

from shuffle_api.errors import AppExpired, MapOutputLost, ShuffleError, UnknownApp, UnknownShuffle
from shuffle_api.ids import ShuffleId
from shuffle_api.periodic import PeriodicTask
from shuffle_server.registry_names import task_name
from shuffle_server.worker.rebalancing import Rebalancing, Releasing
from shuffle_server.worker.replication import Replication
from shuffle_server.worker.worker import Worker

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0


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
