"""One registry that a worker serves: the session with its master, and what is done for what the worker holds of it.

A worker of several registries has all of this once for each. Their threads are apart, so a master that is away keeps
nobody waiting but its own applications.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from shuffle_api.errors import ShuffleError
from shuffle_api.ids import ShuffleId, registry_of
from shuffle_api.periodic import PeriodicTask
from shuffle_api.values import WorkerInfo
from shuffle_server.journals import Journal
from shuffle_server.registry_names import shown, task_name
from shuffle_server.store.format import Description
from shuffle_server.worker.draining import Drain
from shuffle_server.worker.master_session import AWAY, Incarnations, MasterSession
from shuffle_server.worker.output_maintenance import OutputMaintenance
from shuffle_server.worker.recovery import recover_remote
from shuffle_server.worker.remote_registry_view import RemoteRegistryView
from shuffle_server.worker.runtime import WorkerRuntime
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Credentials

log = logging.getLogger(__name__)

AGAIN_SECONDS = 0.5  # between two attempts to join
REFUSED_SECONDS = 10.0  # after a refusal, which may last


class RegistryHoldings:
    """What a worker holds of the applications of one registry: whatever its master says, it concerns nothing else."""

    def __init__(self, data: WorkerRuntime, registry: str) -> None:
        self._data, self._registry = data, registry

    def info(self) -> WorkerInfo:
        return self._data.worker.info

    def status(self) -> pb.WorkerStatus:
        return self._data.worker.status()

    def free_bytes(self) -> int:
        return self._data.store.free_bytes()

    def journal(self) -> Journal:
        return self._data.journal_of(self._registry)

    def joined(self, journal: Journal, held: Journal, master: str) -> None:
        self._data.journals.joined(self._registry, journal, held, master)

    def held_shuffles(self) -> list[ShuffleId]:
        return self._data.held_shuffles_of(self._registry)

    def remove_shuffle(self, shuffle: ShuffleId) -> None:
        if registry_of(shuffle.app) == self._registry:
            self._data.remove_shuffle(shuffle)

    def drop_outputs(self) -> None:
        self._data.drop_outputs(self.held_shuffles())


class JoinedRegistry:
    """The registry `name`, with the masters at `address`. `serve`, then `begin`; `end` and `close` at the end.

    :param changed: called when it was joined, or could not be, and when the worker has left it.
    :ivar joined: this worker has joined, and has announced its outputs of the registry.
    :ivar failure: why it has not been joined, None until that was tried.
    """

    def __init__(
        self,
        name: str,
        address: str,
        data: WorkerRuntime,
        incarnations: Incarnations,
        credentials: Credentials,
        changed: Callable[[], object],
    ) -> None:
        self.name, self._data, self._changed = name, data, changed
        self.session = MasterSession(
            address,
            incarnations,
            RegistryHoldings(data, name),
            credentials,
            name,
        )
        self.view = RemoteRegistryView(address, self.session, data.store.catalog, credentials)
        self.joined = False
        self.failure: ShuffleError | None = None
        self._found: list[Description] = []
        self._joining = PeriodicTask(task_name("join", name), self._join, AGAIN_SECONDS, at_once=True)

    def serve(self, when_drained: Callable[[], None]) -> None:
        """The worker listens. `when_drained` is called when this registry's master wants it to leave."""
        worker, replication = self._data.worker, self._data.replication
        self.drain = Drain(worker, self._data.store, replication, self.session, self._changed, self.name)
        self.maintenance = OutputMaintenance(worker, replication, self.session, self.name)
        self.session.when_drained(when_drained)

    def begin(self, found: Sequence[Description]) -> None:
        """Join in a thread of its own, as soon as the master is there; `found` of it is on the disks. What is found
        later is announced as well."""
        self._found += found
        self._joining.start()

    def _join(self) -> float | None:
        whole = self._data.store.recovery.complete
        self._found += self._data.store.recovery.take(lambda each: registry_of(each.shuffle_id.app) == self.name)
        if self.joined and not self._found and not whole:
            return None
        try:
            if not self.joined:
                self.session.join(0.0)
            self.failure = None
            self.session.as_joined(lambda _: self._recover())
        except ShuffleError as error:
            if str(error) != str(self.failure):
                what = "does not know yet what was found" if self.joined else "is not joined"
                log.warning("%s %s: %s", shown(self.name), what, error)
            self.failure = error
        else:
            self._found.clear()
            if not self.joined:
                self.session.start()
                self.maintenance.start()
                self.joined = True
            if whole:
                self._joining.close()
        self._changed()
        return REFUSED_SECONDS if self.is_refused else None

    def _recover(self) -> None:
        held = [each for each in self._found if self._data.store.catalog.holds(each.shuffle_id, each.output)]
        recover_remote(self._data.store, self.session, self.view, held)

    @property
    def is_refused(self) -> bool:
        """Whether it has not been joined, and trying again does not help."""
        return not self.joined and self.failure is not None and not isinstance(self.failure, AWAY)

    @property
    def has_left(self) -> bool:
        """Whether the worker was drained, and has left."""
        return self.drain.done

    def end(self) -> None:
        """Begin nothing any more; idempotent."""
        self._joining.close()
        self.maintenance.close()
        self.drain.close()

    def close(self) -> None:
        """Close the connections; idempotent."""
        self._joining.close()
        self.session.close()
        self.view.close()
