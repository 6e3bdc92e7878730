"""Peers that do not speak the protocol: servers where ours should be, and clients at our server's ports."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ACCEPT_TIMEOUT_S = 0.2

HTTP_REPLY = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
SSH_GREETING = b"SSH-2.0-OpenSSH_9.2\r\n"

HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
TLS_CLIENT_HELLO = bytes.fromhex("16030100a5010000a10303") + bytes(160)
GREETINGS = {
    "nothing": b"",
    "http": b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": TLS_CLIENT_HELLO,
    "random": random.Random(1).randbytes(1 << 16),
    "http2 garbage": HTTP2_PREFACE + random.Random(2).randbytes(1 << 16),
    "http2 huge frame": HTTP2_PREFACE + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
    "postgresql": bytes.fromhex("0000000804d2162f"),
}


def pester(address: str, greeting: bytes) -> None:
    """Connect, say something, read what comes for a moment, and hang up."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=60) as stranger:
        stranger.settimeout(0.3)
        try:
            stranger.sendall(greeting)
            while stranger.recv(4096):
                pass
        except (TimeoutError, ConnectionError):
            pass  # what becomes of the stranger is of no interest


@contextmanager
def listener(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A TCP server that lets ``answer`` do what it wants with each connection; its address."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(ACCEPT_TIMEOUT_S)
        thread = threading.Thread(target=_accept, args=(server, answer, ended), name="stranger")
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            ended.set()
            thread.join()


def _accept(server: socket.socket, answer: Callable[[socket.socket], None], ended: threading.Event) -> None:
    connections = []
    while not ended.is_set():
        try:
            connection, _ = server.accept()
        except TimeoutError:
            continue
        connections.append(connection)
        connection.settimeout(5)
        try:
            answer(connection)
        except (TimeoutError, ConnectionError):
            pass  # the client has hung up
    for connection in connections:
        connection.close()


def silent(connection: socket.socket) -> None:
    """Accept and say nothing, as a stuck process does."""


def http(connection: socket.socket) -> None:
    """Answer as a web server does to what it does not understand."""
    connection.recv(4096)
    connection.sendall(HTTP_REPLY)
    connection.close()


def ssh(connection: socket.socket) -> None:
    """Speak first, in another protocol."""
    connection.sendall(SSH_GREETING)


@contextmanager
def nobody() -> Iterator[str]:
    """An address at which connections are refused: bound, so that no one else gets it, but not listening."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"
