"""How this process is reached by the tasks of other processes: at its own port, or through a worker."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from shuffle_api.address import Address, parse_address
from shuffle_api.backoff import Backoff
from shuffle_api.errors import InvalidArgument, ServerUnreachable, ShuffleError
from shuffle_plugins.pipelined.closing import close_all
from shuffle_plugins.pipelined.options import PipelinedOptions
from shuffle_plugins.pipelined.security import PeerSecurity
from shuffle_transport.channels import ChannelOptions, ExchangeEndpoint, ExchangeService, Handler, RelayListener
from shuffle_transport.channels.disconnect import disconnect_served
from shuffle_transport.pool import BufferPool

RELAY_BACK_WITHIN = 10.0
"""Seconds in which a relay may restart, and a driver return to it, before the caller gets an error."""

T = TypeVar("T")


class TaskListener(ABC):
    """Channels that others open come to a handler."""

    @abstractmethod
    def address(self, app: str) -> str:
        """Where the tasks of `app` reach this process; they do from the first time that somebody asks.

        :raises ShuffleError: they cannot.
        """

    @abstractmethod
    def close(self, reason: ShuffleError | None = None) -> None:
        """End the channels that came; nobody comes any more. Idempotent.

        :param reason: the error that their other ends get; a ShuttingDown if none is given.
        """

    @abstractmethod
    def cut(self) -> None:
        """Shut down the connections that came: `close` waits for a peer that does nothing. Never waits."""


class DirectListener(TaskListener):
    """A port of the option `host`, for all applications."""

    def __init__(
        self,
        handler: Handler,
        pool: BufferPool,
        options: PipelinedOptions,
        channels: ChannelOptions,
        security: PeerSecurity,
    ) -> None:
        self._handler, self._pool, self._options = handler, pool, options
        self._channels, self._security = channels, security
        self._lock = threading.Lock()
        self._server: ExchangeEndpoint | None = None

    def address(self, app: str) -> str:
        """:raises InvalidArgument: connections use TLS, and there is no certificate to serve with."""
        host = self._options.host
        with self._lock:
            if self._server is None:
                self._server = ExchangeEndpoint(
                    f"{self._security.scheme}://{Address(host, 0)}",
                    self._handler,
                    self._pool,
                    timeout=self._options.timeout,
                    options=self._channels,
                    **self._security.server_arguments(),
                )
            port = self._server.port
        return str(Address(host, port))

    def close(self, reason: ShuffleError | None = None) -> None:
        server = self._server
        if server is not None:
            server.exchange.close(reason)
            server.shutdown()

    def cut(self) -> None:
        if self._server is not None:
            disconnect_served(self._server.port)


class RelayedListener(TaskListener):
    """The worker at the option `relay`, to which this process keeps a stream for each application it takes part in."""

    def __init__(
        self,
        handler: Handler,
        pool: BufferPool,
        options: PipelinedOptions,
        channels: ChannelOptions,
        security: PeerSecurity,
    ) -> None:
        parse_address(
            options.relay,
            "option 'relay'",
            remedy="give a worker's data address: flight-shuffle worker --data-listen HOST:PORT",
        )
        self._options, self._security = options, security
        self._service = ExchangeService(handler, pool, timeout=options.timeout, options=channels)
        self._lock = threading.Lock()
        self._listeners: dict[str, RelayListener] = {}
        self._closed = False

    def address(self, app: str) -> str:
        """:raises ServerUnreachable, DeadlineExceeded, Unauthenticated, PermissionDenied: see `RelayListener`."""
        chosen = self._options
        with self._lock:
            if self._closed:
                raise InvalidArgument("the plugin is closed", remedy="open a new one")
            if app not in self._listeners:
                listen = partial(
                    RelayListener,
                    chosen.relay,
                    app,
                    self._service,
                    self._security.keys,
                    timeout=chosen.timeout,
                    keepalive=chosen.keepalive,
                )
                self._listeners[app] = until_reachable(listen, min(RELAY_BACK_WITHIN, chosen.timeout))
            return self._listeners[app].address

    def close(self, reason: ShuffleError | None = None) -> None:
        with self._lock:
            self._closed = True
            listeners, self._listeners = list(self._listeners.values()), {}
        close_all([partial(self._service.close, reason), *(listener.close for listener in listeners)])

    def cut(self) -> None:
        """Nothing to do: only this process's own calls are open, and Arrow does not wait for those."""


def until_reachable(call: Callable[[], T], seconds: float) -> T:
    """What `call` returns; while it finds nobody there, it is repeated for `seconds`.

    :raises ShuffleError: what else it raises, or ServerUnreachable to the end.
    """
    backoff = Backoff(seconds)
    while True:
        try:
            return call()
        except ServerUnreachable:
            if (pause := backoff.pause()) is None:
                raise
            time.sleep(pause)


def worker_name(address: str) -> str:
    """What the process at an address is called in a MapOutput."""
    _, _, name = address.partition("/")
    return f"relayed-{name}" if name else address.replace(":", "-").replace("[", "").replace("]", "")
