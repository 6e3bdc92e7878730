"""A server process: puts a master, a worker or both together, and takes them apart again."""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Protocol

from shuffle_api.registry.events import AppRemoved, Event, LostOutput, OutputMoved, ShuffleRemoved
from shuffle_api.values import WorkerInfo
from shuffle_server.announced import announced_host, check_free
from shuffle_server.master.runtime import MasterRuntime
from shuffle_server.observe.families import MASTER, WORKER
from shuffle_server.observe.figures import Sources, absent_from
from shuffle_server.observe.observation import Observation
from shuffle_server.options import ServerOptions, control_listen, data_listen, split_directories
from shuffle_server.registry_names import parse_registries
from shuffle_server.security import load_security, warn_of_strangers
from shuffle_server.store.directories import Claims
from shuffle_server.worker.joined_registries import JoinedRegistries
from shuffle_server.worker.recovery import LocalRecovery
from shuffle_server.worker.registry_view import LocalRegistryView
from shuffle_server.worker.runtime import MaintenanceTasks, WorkerRuntime

log = logging.getLogger(__name__)

JOIN_SECONDS = 60.0  # how long a worker that starts looks for its master


class Running(Protocol):
    """A server that serves."""

    @property
    def ready(self) -> Sequence[tuple[str, str]]:
        """What its ready line says: names and addresses."""
        ...

    def stop(self) -> bool:
        """Stop serving and close everything; call once. False when streams stayed open: they die with the process."""
        ...


class Server:
    """A master with a worker. Serves from its constructor on, until `stop`.

    Raises StorageFailed (the data directory) and InvalidArgument (an address, a certificate, the secret) when it
    cannot start.
    """

    def __init__(self, options: ServerOptions) -> None:
        listen, data = control_listen(options), data_listen(options)
        self._security = security = load_security(options)
        warn_of_strangers({listen.host, data.host}, security)
        self._claims = Claims(split_directories(options.data_dir), options.disk_timeout)
        raise_file_limit()
        with ExitStack() as undo:  # what is to be closed if it cannot start
            undo.callback(self._claims.close)
            undo.callback(security.close)
            self._claims.lock()
            check_free(listen, "--listen")
            check_free(data, "--data-listen")
            security.start()
            self._observation = Observation(
                options.http_listen, authenticate=security.authenticate, https=security.https
            )
            undo.callback(self._observation.close)
            instruments = self._observation.instruments
            self._data = WorkerRuntime(options, instruments, self._claims)
            self._control = self._claims.journal(lambda around: MasterRuntime(options, instruments, around=around))
            master = self._control.master
            # Before it can be reached, so that what is on disk can be committed.
            self._control.membership.join(
                WorkerInfo(self._data.id, announced_host(options.advertise, data), 0), local=True
            )
            self._recovery = LocalRecovery(self._data.store, master, self._data.id)
            self._data.journals.joined("", master.journal(), self._data.journal_of(""), "in this process")
            self._recovery.announce()
            master.subscribe(_Follower(self._data))
            self.worker = self._data.serve(
                LocalRegistryView(master, self._data.id), security, self._control.place, self._claims.first
            )
            self._control.membership.join(self.worker.info, local=True)
            self.control_address = self._control.serve(security, self.worker)
            self.data_address = self.worker.info.address
            self._maintenance = MaintenanceTasks(
                min(self._control.look_seconds, self._data.look_seconds), self._control, self._data
            )
            self._recovery.task.start()
            absent = partial(absent_from, master, self._data.id)
            sources = Sources(
                self._control.sources(self.control_address), self._data.sources(absent), security.token_statistics
            )
            self._observation.attach(sources, options.window)
            undo.pop_all()

    @property
    def ready(self) -> Sequence[tuple[str, str]]:
        return [("control", self.control_address), ("data", self.data_address), *self._observation.ready]

    def stop(self) -> bool:
        self._observation.stopping()
        self.worker.stopping = True  # pushes under way are refused at their next message, new ones at once
        self._recovery.task.close()
        self._control.stop()
        ended = self._data.stop()
        self._maintenance.stop()
        self._observation.close()
        self._data.close()
        self._control.close()
        self._security.close()
        self._claims.close()
        return ended


class MasterServer:
    """A master without a worker. Raises as `Server` does; ShuttingDown if it was to stop before it led (`stopping`).

    :param stands_by: called when another master turns out to lead.
    """

    def __init__(
        self,
        options: ServerOptions,
        stopping: Callable[[], bool] = lambda: False,
        stands_by: Callable[[], object] = lambda: None,
    ) -> None:
        self._security = security = load_security(options)
        warn_of_strangers({control_listen(options).host}, security)
        self._claims = Claims(split_directories(options.data_dir), options.disk_timeout)
        raise_file_limit()
        with ExitStack() as undo:
            undo.callback(self._claims.close)
            undo.callback(security.close)
            self._claims.lock()
            security.start()
            self._observation = Observation(options.http_listen, MASTER, security.authenticate, security.https)
            undo.callback(self._observation.close)

            def stand_by(could_not_lead: Callable[[], str]) -> None:
                self._observation.stand_by(could_not_lead)
                stands_by()

            make = partial(MasterRuntime, options, self._observation.instruments, stopping, stand_by)
            self._control = self._claims.journal(make)
            self.control_address = self._control.serve(security)
            self._maintenance = MaintenanceTasks(self._control.look_seconds, self._control)
            sources = self._control.sources(self.control_address)
            self._observation.attach(Sources(sources, None, security.token_statistics), 0)
            undo.pop_all()

    @property
    def ready(self) -> Sequence[tuple[str, str]]:
        return [("control", self.control_address), *self._observation.ready]

    def stop(self) -> bool:
        self._observation.stopping()
        self._control.stop()
        self._maintenance.stop()
        self._observation.close()
        self._control.close()
        self._security.close()
        self._claims.close()
        return True


class WorkerServer:
    """A worker of masters elsewhere. Raises as `Server` does, ServerUnreachable when the masters stay away, and
    ShuttingDown if it was to stop before it had joined one (`stopping`).
    """

    def __init__(self, options: ServerOptions, *, stopping: Callable[[], bool] = lambda: False) -> None:
        self._security, listen = load_security(options), data_listen(options)
        security = self._security
        warn_of_strangers({listen.host}, security)
        self._claims = Claims(split_directories(options.data_dir), options.disk_timeout)
        first = self._claims.first
        raise_file_limit()
        with ExitStack() as undo:
            undo.callback(self._claims.close)
            undo.callback(security.close)
            self._claims.lock()
            check_free(listen, "--data-listen")
            security.start()
            self._observation = Observation(options.http_listen, WORKER, https=security.https)
            undo.callback(self._observation.close)
            self._data = WorkerRuntime(options, self._observation.instruments, self._claims)
            store, credentials = self._data.store, security.for_worker(self._data.id)
            found = list(store.recover())
            self._when_left: Callable[[], object] = lambda: None
            masters = parse_registries(options.master, "--master")
            make = partial(JoinedRegistries, masters, self._data, first.root / "incarnation", credentials)
            self._registries = first.do("the incarnation", lambda: make(lambda: self._when_left()))
            undo.callback(self._registries.close)
            self.worker = self._data.serve(self._registries, security, self._registries.place, first)
            undo.callback(self._data.stop)
            self._registries.serve()
            undo.callback(self._registries.end)
            self._registries.join(found, JOIN_SECONDS, stopping)
            self._maintenance = MaintenanceTasks(self._data.look_seconds, self._data)
            sources = self._data.sources(self._registries.absent, self._registries.counted_on)
            self._observation.attach(Sources(None, sources, security.token_statistics), options.window)
            undo.pop_all()

    @property
    def ready(self) -> Sequence[tuple[str, str]]:
        return [("worker", self.worker.info.id), ("data", self.worker.info.address), *self._observation.ready]

    def when_left(self, call: Callable[[], object]) -> None:
        """Have `call` called when this worker was drained and has left its master: it is of no use any more."""
        self._when_left = call
        if self._registries.drained:
            call()

    def begin_drain(self) -> None:
        """Migrate what is held, then leave."""
        self._registries.begin_drain()

    def stop(self) -> bool:
        self._observation.stopping()
        self.worker.stopping = True
        self._registries.end()
        ended = self._data.stop()
        self._maintenance.stop()
        self._observation.close()
        if self._registries.drained:
            for shuffle in self._data.held_shuffles():
                self._data.remove_shuffle(shuffle)
        self._registries.close()
        self._data.close()
        self._security.close()
        self._claims.close()
        return ended


class _Follower:
    """A listener for the master's events: data follows metadata, what the registry removed the store removes.

    In a thread of the worker's: the caller of `Unregister*` waits neither for locks nor for disks.
    """

    def __init__(self, data: WorkerRuntime) -> None:
        self._data, self._store, self._worker = data, data.store, data.id

    def __call__(self, event: Event) -> None:
        if isinstance(event, ShuffleRemoved):
            self._data.removals.later(partial(self._data.remove_shuffle, event.id))
        elif isinstance(event, AppRemoved):
            self._data.removals.later(partial(self._store.remove_app, event.app))
        elif isinstance(event, LostOutput) or (
            isinstance(event, OutputMoved) and self._worker not in event.output.workers
        ):
            self._store.remove_output(event.shuffle, event.output.output)


def raise_file_limit() -> None:
    """As many open files as the system lets this process have: one per attempt being written, and per pull."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # macOS has a limit below its "infinity"
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
