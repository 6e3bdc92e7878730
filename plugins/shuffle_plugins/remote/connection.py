"""The connections of one process to the servers it uses: one control channel and one Flight client per worker."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Collection
from typing import TypeVar

from shuffle_api.backoff import Backoff
from shuffle_api.errors import InvalidArgument, ServerUnreachable, ShuttingDown, StreamBroken
from shuffle_api.ids import ShuffleId, name_of, run_at
from shuffle_plugins.remote.locate_cache import LocateCache
from shuffle_plugins.remote.options import RemoteOptions
from shuffle_plugins.remote.shuffle_events import ShuffleEvents
from shuffle_plugins.remote.traffic import ReadMetrics, RemoteTraffic
from shuffle_plugins.remote.workers import Placements, WorkerTable
from shuffle_transport import messages
from shuffle_transport.connect import is_own_address
from shuffle_transport.control_client import ControlClient
from shuffle_transport.flight_client import FlightClient
from shuffle_transport.local_files import LocalFileAccess
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import NO_CREDENTIALS, Credentials

T = TypeVar("T")
CLIENT = "flight-shuffle-python/0.1.0"


class ProgressBackoff:
    """How long to go on with something that breaks: for `seconds` without progress, pausing before each new start."""

    def __init__(self, seconds: float) -> None:
        self._place: object = None
        self._backoff = Backoff(seconds)

    def more(self, place: object) -> bool:
        """Whether to start again at `place`, after a pause; a place other than the last one is progress."""
        if place != self._place:
            self._place = place
            self._backoff.progress()
        if (pause := self._backoff.pause()) is None:
            return False
        time.sleep(pause)
        return True


class Connection:
    """Control and data connections of one application to the service at one address, or at those of several masters.

    Thread-safe; connects on first use.
    """

    def __init__(
        self, address: str, app: str, options: RemoteOptions, credentials: Credentials = NO_CREDENTIALS
    ) -> None:
        self.control = ControlClient(
            address, client=CLIENT, timeout=options.timeout, retry=options.retry, credentials=credentials
        )
        self._app, self._options, self._credentials = app, options, credentials
        self._host = options.host or socket.gethostname()
        self._lock = threading.Lock()
        self.events = ShuffleEvents(self.control, options.retry)
        self.local_files = LocalFileAccess(app, allowed=options.hand_over == "auto")
        self.traffic = RemoteTraffic()
        self.read_metrics = ReadMetrics(self.local_files, self.data)
        self.workers, self.placements, self.located = WorkerTable(), Placements(), LocateCache()
        self._clients: dict[str, FlightClient] = {}
        self._closed = False

    def refresh(self) -> None:
        """Greet the master of the application's run and learn what has changed of the workers.

        Raises what `ControlClient.hello` raises.
        """
        self.workers.learn(self.control.hello(self.workers.known(), self._app))

    def begin(self, run: str) -> str:
        """Greet the master of the registry where a new run of this application is to be registered; the run as that
        one is to have it.

        Raises what `ControlClient.hello` raises.
        """
        reply = self.control.hello(self.workers.known(), name_of(run))
        self.workers.learn(reply)
        # A server of version 1 takes no runs: there one of a name ends before the next one begins.
        self._app = run_at(run, reply.registry) if reply.protocol > 1 else name_of(run)
        return self._app

    def place(self, shuffle: ShuffleId, avoid: Collection[str] = ()) -> str:
        """The id of the worker to write a map output to; one of those to `avoid` only when there is no other.

        The master is asked once for all outputs of some seconds, and again when all candidates have failed.

        Raises ServerUnreachable, ProtocolMismatch, UnknownApp, AppExpired, UnknownShuffle.
        """
        known = self.placements.choose(avoid)
        if known is not None and self.workers.get(known) is not None:
            return known
        request = pb.PlaceRequest(
            shuffle=messages.key_of(shuffle),
            host=self._host,
            near=self._options.near,
            avoid=self.placements.to_avoid(avoid),
        )
        reply: pb.PlaceReply = self.control.call("Place", request)
        self.workers.add(reply.workers)
        if not reply.workers:
            raise ServerUnreachable(
                self.control.address,
                "no worker takes map outputs",
                remedy="start one; with the option only, one that has this label",
            )
        self.placements.answered(reply)
        return self.placements.choose() or reply.workers[0].id

    def data(self, worker: str) -> FlightClient:
        """The Flight client of a worker."""
        with self._lock:
            if self._closed:
                raise InvalidArgument("the plugin is closed", remedy="open a new one")
            client, info = self._clients.get(worker), self.workers.get(worker)
            if client is not None and info is not None and client.address == info.address:
                return client
        if info is None:
            self.refresh()
            info = self.workers.get(worker)
        if info is None:
            raise ServerUnreachable(
                f"worker {worker}",
                f"the master at {self.control.address} does not know it",
                remedy="see why the worker has left",
            )
        with self._lock:
            client = self._clients.get(worker)
            if client is None or client.address != info.address:
                client = self._clients[worker] = FlightClient(
                    info.address, timeout=self._options.timeout, credentials=self._credentials
                )
            return client

    def on_this_host(self, worker: str) -> bool:
        """Whether the address of a worker is one of this host's, so that what is sent there crosses no network."""
        info = self.workers.get(worker)
        return info is not None and is_own_address(info.address)

    def retrying(self, action: Callable[[], T]) -> T:
        """Run `action`; again while its server cannot be reached or its stream breaks, for as long as the options say.

        Only for actions that may be repeated. A worker may come back at another address, so its address is asked anew.
        """
        backoff = Backoff(self._options.retry)
        while True:
            try:
                return action()
            except (ServerUnreachable, StreamBroken, ShuttingDown):
                if (pause := backoff.pause()) is None:
                    raise
            time.sleep(pause)
            self.refresh()

    def backoff(self) -> ProgressBackoff:
        """For an action that goes on where it broke off."""
        return ProgressBackoff(self._options.retry)

    def close(self) -> None:
        """Close everything; idempotent."""
        self.read_metrics.close()
        with self._lock:
            self._closed = True
            clients = list(self._clients.values())
            self._clients.clear()
        self.events.close()
        for client in clients:
            client.close()
        self.control.close()
