"""A worker that is to leave: it takes nothing new, migrates what it holds, and goes when nothing lies here only.

It serves until the end. Outputs that it has migrated lie at two workers until it goes, so that a reader finds them
wherever it looks, and the registry is right at every moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from shuffle_api.errors import InvalidArgument, MapOutputLost, ShuffleError
from shuffle_api.ids import ShuffleId
from shuffle_api.periodic import PeriodicTask
from shuffle_api.values import MapOutput, ShuffleSpec
from shuffle_server.registry_names import task_name
from shuffle_server.store.store import Store
from shuffle_server.worker.replication import Replication
from shuffle_server.worker.worker import Worker

log = logging.getLogger(__name__)

THREADS = 4  # outputs migrated at once
LOOK_SECONDS = 0.5
IDLE_SECONDS = 60.0  # after which an attempt that nobody goes on writing is not waited for
PULLS_SECONDS = 10.0  # for which those that read here are waited for in the end


class Leaving(Protocol):
    """What is asked of the session with one registry's master."""

    def held_shuffles(self) -> list[ShuffleId]: ...
    def drain(self) -> None: ...
    def leave(self) -> None: ...


class Drain:
    """Hands over what a worker holds for one registry, in a thread of its own. `begin` it once; `close` ends it
    wherever it is.

    :param left: called when the worker has left that registry.
    """

    def __init__(
        self,
        worker: Worker,
        store: Store,
        replication: Replication,
        session: Leaving,
        left: Callable[[], object],
        registry: str = "",
    ) -> None:
        self._worker, self._store, self._replication, self._session = worker, store, replication, session
        self._left = left
        self._task = PeriodicTask(task_name("drain", registry), self._run, LOOK_SECONDS, at_once=True)
        self._closing = self._task.closing
        self._told = False
        self.done = False

    def begin(self) -> None:
        """Take nothing new from now on, and migrate what is here; idempotent."""
        if self._closing.is_set():
            return
        if not self._worker.draining:
            log.info("this worker migrates what it holds, and leaves")
        self._worker.draining = True
        self._task.start()

    def close(self) -> None:
        """Give up, if it is not done; idempotent."""
        self._task.close()

    def _run(self) -> None:
        try:
            self._tell()
            if self.done or (self._migrate() and self._leave()):
                self._await_pulls()
                self._left()
                self._task.close()
        except ShuffleError as error:  # the master may be away, and no other worker there
            log.warning("the migration goes on in a moment: %s", error)

    def _tell(self) -> None:
        """Have the master send nobody here; it may have been another one that wants the worker to leave."""
        if not self._told:
            self._session.drain()
            self._told = True

    def _leave(self) -> bool:
        try:
            self._session.leave()
        except InvalidArgument as error:  # something was committed in the last moment
            log.info("%s", error)
            return False
        self.done = True
        log.info("this worker has left its master; all that it held lies at other workers")
        return True

    def _await_pulls(self) -> None:
        """Wait for the open pulls, for a limited time; readers left then go on elsewhere."""
        for _ in range(int(PULLS_SECONDS / LOOK_SECONDS)):
            if self._closing.is_set() or not self._worker.status().open_pulls:
                return
            self._closing.wait(LOOK_SECONDS)

    def _migrate(self) -> bool:
        """One round over all that is here; whether nothing is left to migrate, and nothing is being written."""
        wanting = [
            (spec, output)
            for shuffle in self._session.held_shuffles()
            for spec, output in self._worker.held(shuffle)
            if len(output.workers) - 1 < spec.replicas and not self._closing.is_set()
        ]
        with ThreadPoolExecutor(THREADS, thread_name_prefix="drain") as threads:
            kept = sum(threads.map(lambda each: not self._copy(*each), wanting))
        self._store.drop_idle(IDLE_SECONDS)
        status = self._worker.status()
        return not kept and not status.staged_outputs and not status.open_pushes

    def _copy(self, spec: ShuffleSpec, output: MapOutput) -> bool:
        """Whether the output is at another worker now, or gone."""
        if self._closing.is_set():
            return False
        try:
            to = self._replication.copy_to_one(
                spec.id, output.output, self._replication.candidates(spec.id, output.workers)
            )
        except MapOutputLost as error:
            self._worker.give_up(spec.id, output.output, error.message)
            return True
        return to is not None or len(output.workers) > 1
