"""The proxy's faults are those it says."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.faults.fault_proxy import FaultProxy

DEADLINE_S = 60.0


@pytest.fixture
def echo() -> Iterator[str]:
    """The address of a server that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads: list[threading.Thread] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threads.append(threading.Thread(target=answer, args=(connection,)))
                threads[-1].start()

        def answer(connection: socket.socket) -> None:
            with connection:
                try:
                    while piece := connection.recv(1 << 16):
                        connection.sendall(piece)
                except OSError:
                    pass  # a reset is what some tests want

        acceptor = threading.Thread(target=serve)
        acceptor.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        acceptor.join(DEADLINE_S)
        for thread in threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


def connect(proxy: FaultProxy) -> socket.socket:
    host, _, port = proxy.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=DEADLINE_S)


def exchange(client: socket.socket, sent: bytes) -> bytes:
    client.sendall(sent)
    return receive(client, len(sent))


def receive(client: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size and (piece := client.recv(size - len(got))):
        got += piece
    return got


def test_what_is_sent_comes_back_and_an_end_is_an_end(echo: str) -> None:
    data = bytes(range(256)) * 4096
    with FaultProxy(echo) as proxy, connect(proxy) as client:
        sender = threading.Thread(target=client.sendall, args=(data,))
        sender.start()
        assert receive(client, len(data)) == data
        sender.join(DEADLINE_S)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""


def test_a_delay_holds_what_passes(echo: str) -> None:
    with FaultProxy(echo, delay=0.1) as proxy, connect(proxy) as client:
        started = time.monotonic()
        assert exchange(client, b"there") == b"there"
        assert time.monotonic() - started >= 0.2  # there and back; how much more, nobody asserts


def test_a_reset_hits_the_connections_that_are_open(echo: str) -> None:
    with FaultProxy(echo) as proxy:
        with connect(proxy) as client:
            assert exchange(client, b"first") == b"first"
            assert proxy.reset() == 1
            with pytest.raises(ConnectionResetError):
                client.recv(1)
        with connect(proxy) as client:
            assert exchange(client, b"second") == b"second"


def test_a_silence_is_not_told_and_loses_nothing(echo: str) -> None:
    with FaultProxy(echo) as proxy, connect(proxy) as client:
        assert exchange(client, b"before") == b"before"
        proxy.freeze()
        client.sendall(b"meanwhile")
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)
        proxy.thaw()
        client.settimeout(DEADLINE_S)
        assert receive(client, 9) == b"meanwhile"


def test_nobody_behind_it_is_a_reset() -> None:
    with socket.socket() as taken:  # and not listening: nobody else can
        taken.bind(("127.0.0.1", 0))
        with FaultProxy(f"127.0.0.1:{taken.getsockname()[1]}") as proxy:
            with pytest.raises(ConnectionError), connect(proxy) as client:  # with the connection, or after it
                client.sendall(b"anybody?")
                client.recv(1)
