"""The master of a process: registry, membership, control endpoint, put together and taken apart again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from contextlib import nullcontext
from functools import partial
from typing import ClassVar

from shuffle_api.address import Address
from shuffle_api.backoff import Backoff
from shuffle_api.clock import LOOKS_PER_TIMEOUT
from shuffle_api.errors import InvalidArgument, ServerUnreachable, ShuffleError
from shuffle_api.ids import ShuffleId
from shuffle_api.values import HOST, WorkerInfo
from shuffle_server import __version__
from shuffle_server.announced import announced_host
from shuffle_server.connection_guard import ConnectionStatistics
from shuffle_server.master.cluster import Cluster, LocalWorker
from shuffle_server.master.control import ControlOptions, ControlService
from shuffle_server.master.endpoint import ControlServer, Limits, start_control
from shuffle_server.master.files import Around
from shuffle_server.master.history import History
from shuffle_server.master.liveness import AppLiveness
from shuffle_server.master.master import Master
from shuffle_server.master.membership import Membership
from shuffle_server.master.placement import Wish
from shuffle_server.master.quota import Quotas
from shuffle_server.master.registries import Registries
from shuffle_server.master.serving import ServedTime
from shuffle_server.master.storage import StandingBy, open_storage
from shuffle_server.master.summary import Skews
from shuffle_server.observe.aside import Aside
from shuffle_server.observe.calls import CallObserver
from shuffle_server.observe.figures import MasterSources, Skew, Writable
from shuffle_server.observe.instruments import Instruments
from shuffle_server.options import ServerOptions, control_listen
from shuffle_server.registry_names import parse_registries
from shuffle_server.security import ServerSecurity
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)

CONTROL_GRACE = 5.0
MAINTENANCE_SECONDS = 5.0
LISTEN_SECONDS = 120.0  # for which an address may be in use
ASIDE_SECONDS = 2.0  # for which who looks on waits for the registry's disk


class MasterRuntime:
    """A registry from its constructor on; serves from `serve` to `stop`; `close` at the end.

    :param stopping: asked while it stands by for another master (`--metadata`).
    :param standing_by, around: see `open_storage`.
    :raises StorageFailed: the registry's files are damaged.
    :raises ShuttingDown: `stopping` said so.
    """

    role: ClassVar[str] = "master"

    def __init__(
        self,
        options: ServerOptions,
        instruments: Instruments,
        stopping: Callable[[], bool] = lambda: False,
        standing_by: StandingBy = lambda why: None,
        around: Around = nullcontext,
    ) -> None:
        self._options, self._instruments = options, instruments
        self._served = ServedTime()
        self._registries = Registries(
            options.registry, parse_registries(options.masters, "--masters") if options.masters else {}
        )
        self._storage = open_storage(options, stopping, standing_by, around)
        try:
            self.master = Master(
                self._storage.directory,
                sync=options.durability == "fsynced",
                snapshot_every=options.snapshot_every,
                wait_seconds=options.disk_timeout,
                sure=self._storage.sure or (lambda: None),
                liveness=AppLiveness(options.app_timeout, self._served),
            )
        except BaseException:
            self._storage.close()
            raise
        self._check_registry()
        self.history = History()
        self.master.subscribe(instruments.happened)
        self.master.subscribe(self.history.happened)
        self.history.record("leader", f"this master leads, epoch {self.master.epoch}")
        self.membership = Membership(self.master, options.worker_timeout, served=self._served, history=self.history)
        self._server: ControlServer | None = None
        self._local: LocalWorker | None = None
        self.service: ControlService | None = None
        self._skews: Skews | None = None

    def _check_registry(self) -> None:
        options, apps = self._options, [record.app for record in self.master.registry.apps()]
        where = "the database" if options.metadata else f"the journal in {options.data_dir}"
        try:
            self._registries.check_apps(apps, where)
        except InvalidArgument:
            self.close()
            raise

    def serve(self, security: ServerSecurity, local: LocalWorker | None = None) -> str:
        """Listen; the address. Raises InvalidArgument when it cannot.

        :param local: the worker in this process, which has joined.
        """
        options, self._local = self._options, local
        address = control_listen(options)
        host = announced_host(options.advertise, address)
        cluster = Cluster(self.membership, local, security.for_cluster(), options.registry)
        self._skews = Skews(self.master, cluster)
        heartbeat = max(1, int(options.app_timeout / 4))
        quotas = Quotas(options.app_max_runs, options.app_max_shuffles, options.shuffle_max_blocks)
        service = ControlService(
            self.master,
            cluster,
            __version__,
            heartbeat,
            ControlOptions(cluster.states, quotas, options.app_max_watches, options.copies_apart, self._registries),
            self.history,
        )
        self.service = service
        listen = partial(
            start_control,
            service,
            self.membership,
            address.host,
            address.port,
            Limits(
                options.control_threads,
                options.control_calls,
                options.control_connections,
                options.peer_max_connections,
                options.peer_timeout,
            ),
            security,
            observer=CallObserver(self._instruments),
            sure=self._storage.sure or (lambda: None),
            served=self._served,
        )
        self._server, bound = _patiently(listen) if options.metadata else listen()
        return str(Address(host, bound))

    def sources(self, address: str) -> MasterSources:
        """What monitoring asks. `address`: where clients reach this master."""
        return MasterSources(
            self.master,
            Aside(self._storage.writable, ASIDE_SECONDS, Writable(), self._no_answer),
            Aside(self._storage.bytes, ASIDE_SECONDS, 0),
            self._storage.leads,
            lambda: {} if self._server is None else self._server.calls(),
            lambda: {} if self._server is None else self._server.streams(),
            lambda: ConnectionStatistics() if self._server is None else self._server.connections(),
            lambda request: pb.StatusReply() if self.service is None else self.service.Status(request),
            self.history.events,
            self._skew,
            self._storage.standbys,
            address,
        )

    def _skew(self, app: str, shuffle: int) -> Skew:
        if self._skews is None:
            raise ServerUnreachable("this master", "it does not serve yet")
        return self._skews.of(app, shuffle)

    def _no_answer(self, last: Writable) -> Writable:
        return Writable(f"the registry's disk has not answered a write for {ASIDE_SECONDS:g} s")

    def place(self, shuffle: ShuffleId, avoid: Collection[str]) -> list[WorkerInfo]:
        """For the worker in this process: the workers that take a copy of a map output, best first."""
        with self.master.lock:
            registry = self.master.registry
            only = registry.app(registry.spec(shuffle).id.app).only
        apart = None if self._local is None else (self._local.info, (self._options.copies_apart, HOST))
        wish = Wish(only=only, avoid=frozenset(avoid), apart=apart)
        return [each.info for each in self.membership.place(wish).candidates]

    @property
    def look_seconds(self) -> float:
        """How often `maintain` is to be called."""
        options = self._options
        return min(MAINTENANCE_SECONDS, min(options.app_timeout, options.worker_timeout) / LOOKS_PER_TIMEOUT)

    def maintain(self) -> None:
        """To be called every `look_seconds`."""
        try:
            self.master.expire()
            self.membership.expire()
        except (ShuffleError, OSError) as error:
            log.warning("nothing can be expired now: %s", error)  # the journal's disk may be full

    def stop(self) -> None:
        """End the calls."""
        self._served.end()
        if self._server is not None:
            self._server.stop(CONTROL_GRACE).wait()

    def close(self) -> None:
        """Close the registry's files."""
        try:
            self.master.close()
        finally:
            self._storage.close()


def _patiently(listen: Callable[[], tuple[ControlServer, int]]) -> tuple[ControlServer, int]:
    """A former leader on this machine may have the address until it ends; one that is frozen does not end by itself."""
    backoff = Backoff(LISTEN_SECONDS)
    while True:
        try:
            return listen()
        except InvalidArgument as error:
            if (pause := backoff.pause()) is None:
                raise
            log.warning("leads, and does not listen yet: %s", error.message)
        time.sleep(pause)
