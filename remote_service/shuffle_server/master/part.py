"""The master of a process: registry, membership, control endpoint, put together and taken apart again."""

from __future__ import annotations

import logging

import grpc

from shuffle_api.errors import ShuffleError
from shuffle_server import __version__
from shuffle_server.master.cluster import Cluster, LocalWorker
from shuffle_server.master.control import ControlService, start_control
from shuffle_server.master.master import Master
from shuffle_server.master.membership import Membership
from shuffle_server.observe.calls import CallObserver, RequestFields
from shuffle_server.observe.instruments import Instruments
from shuffle_server.options import ServerOptions, split_address
from shuffle_server.security import ServerSecurity, peer_credentials
from shuffle_server.store.directories import split_directories

log = logging.getLogger(__name__)

CONTROL_GRACE = 5.0


class MasterPart:
    """A registry from its constructor on; serves from `serve` to `stop`; `close` at the end.

    :raises StorageFailed: the registry's files are damaged.
    """

    def __init__(self, options: ServerOptions, instruments: Instruments) -> None:
        self._options, self._instruments = options, instruments
        self.journal_dir = split_directories(options.data_dir)[0] / "master"
        self.master = Master(self.journal_dir, sync=options.durability == "fsynced")
        self.master.subscribe(instruments.happened)
        self.membership = Membership(self.master, options.worker_timeout)
        self._server: grpc.Server | None = None

    def serve(self, security: ServerSecurity, local: LocalWorker | None = None) -> str:
        """Listen; the address. Raises InvalidArgument when it cannot.

        :param local: the worker in this process, which has joined.
        """
        options = self._options
        host, port = split_address(options.listen, "--listen")
        cluster = Cluster(self.membership, local, peer_credentials(options))
        heartbeat = max(1, int(options.app_timeout / 4))
        service = ControlService(self.master, cluster, __version__, heartbeat, cluster.states, options.app_max_shuffles)
        self._server, bound = start_control(
            service,
            self.membership,
            host,
            port,
            options.control_threads,
            security,
            around=[CallObserver(self._instruments)],
            inside=[RequestFields()],
        )
        return f"{options.advertise or host}:{bound}"

    def keep_house(self) -> None:
        """To be called every few seconds."""
        try:
            self.master.expire(self._options.app_timeout)
            for worker in self.membership.expire():
                log.error("worker %s was silent for too long; what lay only there is lost", worker)
        except (ShuffleError, OSError) as error:
            log.warning("nothing can be expired now: %s", error)  # the journal's disk may be full

    def stop(self) -> None:
        """End the calls."""
        if self._server is not None:
            self._server.stop(CONTROL_GRACE).wait()

    def close(self) -> None:
        """Close the registry's files."""
        self.master.close()
