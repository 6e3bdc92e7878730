"""Cutting a connection finds the very one."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from shuffle_transport.channels.disconnect import disconnect_from_peer, disconnect_own_end

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def pairs(request: pytest.FixtureRequest) -> Iterator[list[Pair]]:
    """Two connections to one listener: (client's end, server's end)."""
    host: str = request.param
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found: list[Pair] = []
    with socket.socket(family) as listener:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, 0))
        listener.listen()
        for _ in range(2):
            client = socket.create_connection(listener.getsockname()[:2], timeout=60)
            found.append((client, listener.accept()[0]))
        yield found
    for pair in found:
        for end in pair:
            end.close()


def grpc_name(end: socket.socket) -> str:
    host, port = end.getsockname()[:2]
    host = host.removeprefix("::ffff:")
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


def is_open(pair: Pair) -> bool:
    client, server = pair
    try:
        server.sendall(b"x")
        return client.recv(1) == b"x"
    except OSError:
        return False


def test_a_servers_end_is_found_by_the_clients_address(pairs: list[Pair]) -> None:
    disconnect_from_peer(grpc_name(pairs[0][0]))
    assert [is_open(pair) for pair in pairs] == [False, True]


def test_a_clients_end_is_found_by_its_own_address(pairs: list[Pair]) -> None:
    disconnect_own_end(grpc_name(pairs[1][0]))
    assert [is_open(pair) for pair in pairs] == [True, False]


@pytest.mark.parametrize("address", ["", "unix:", "ipv4:", "ipv4:127.0.0.1:x", "ipv4:127.0.0.1:1", "nonsense"])
def test_an_address_that_nobody_has_cuts_nothing(pairs: list[Pair], address: str) -> None:
    disconnect_from_peer(address)
    disconnect_own_end(address)
    assert [is_open(pair) for pair in pairs] == [True, True]


@pytest.mark.parametrize("address", ["ipv4:127.0.0.1:²", "ipv4:127.0.0.1:" + 5000 * "1", "ipv4:", "unix:/a:1", ""])
def test_what_is_no_address_cuts_nothing(address: str) -> None:
    disconnect_own_end(address)  # the other end said so: it must not end the timer thread's thread
    disconnect_from_peer(address)
