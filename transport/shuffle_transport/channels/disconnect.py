"""Ending a connection: the last resort of a deadline, where gRPC waits for as long as TCP does.

With pyarrow a server cannot cancel a call at all. A client can, but a write whose bytes TCP does not take (the other
end has stopped) waits on. In either case the connection ends, with all its calls; they are as stuck.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from urllib.parse import unquote

from shuffle_api.address import parse_address
from shuffle_api.errors import InvalidArgument
from shuffle_transport.tcp_sockets import shut_down

Name = Callable[[socket.socket], tuple[str, int]]


def disconnect_from_peer(address: str) -> None:
    """Shut down this process's TCP connection to the client `address` (`ipv4:1.2.3.4:5`, `ipv6:[::1]:5`, as gRPC says).

    Does nothing where file descriptors are not listed in /proc: then stuck calls end when the system gives up the
    connection.
    """
    _cut(address, lambda connection: connection.getpeername()[:2])


def disconnect_own_end(address: str) -> None:
    """Shut down the TCP connection of this process whose own end is `address`, as the server sees it. Else as
    `disconnect_from_peer`.

    Does nothing if the server sees another address, that of a proxy. gRPC's keep-alive ends such a connection.
    """
    _cut(address, lambda connection: connection.getsockname()[:2])


def disconnect_served(port: int) -> None:
    """Shut down all TCP connections of this process that came to its server at `port`. Else as
    `disconnect_from_peer`."""
    for descriptor in _descriptors():
        shut_down(descriptor, lambda connection: _came_to(connection, port))


def _cut(address: str, name: Name) -> None:
    kind, _, address = unquote(address).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return
    try:
        wanted = parse_address(address, "the peer")
    except InvalidArgument:
        return

    def is_wanted(connection: socket.socket) -> bool:
        host, port = name(connection)
        # gRPC listens for both families with one socket, and shows mapped addresses as IPv4.
        return (host.removeprefix("::ffff:"), port) == (wanted.host, wanted.port)

    for descriptor in _descriptors():
        shut_down(descriptor, is_wanted)


def _came_to(connection: socket.socket, port: int) -> bool:
    connection.getpeername()  # raises OSError for a socket that listens
    return bool(connection.getsockname()[1] == port)


def _descriptors() -> list[int]:
    try:
        return [int(descriptor) for descriptor in os.listdir("/proc/self/fd")]
    except OSError:
        return []
