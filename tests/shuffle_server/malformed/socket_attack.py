"""Bytes on the bare TCP ports: no HTTP/2, HTTP/2 cut anywhere, other protocols, connections that say nothing more."""

from __future__ import annotations

import socket
import struct
from random import Random
from typing import ClassVar

from tests.shuffle_server.malformed.attack import Attack, Target
from tests.shuffle_server.malformed.mutate import damaged

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
TLS_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(64) + b"\0\x02\x13\x01\x01\0"
IDLE = 24  # connections that send one byte and stay open


class SocketAttack(Attack):
    """Each seed is one connection; it is answered by its end, or not at all: this side ends it."""

    name: ClassVar[str] = "socket"

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._idle: list[socket.socket] = []

    def send(self, seed: int) -> int:
        rng = Random(f"{self.name} {seed}")
        pieces = _pieces(rng)
        connection = _connect(rng.choice((self.target.control, self.target.data)))
        if rng.random() < 0.1 and len(self._idle) < IDLE:
            connection.sendall(rng.choice((b"P", b"\x16", b"\0")))
            self._idle.append(connection)
            return 1
        with connection:
            try:
                for piece in pieces:
                    connection.sendall(piece)
                if rng.random() < 0.3:
                    connection.shutdown(socket.SHUT_WR)
                connection.settimeout(0.05)
                connection.recv(1 << 16)
            except OSError:
                pass  # the end of a connection is how garbage is refused
            if rng.random() < 0.3:  # and a reset instead of an orderly end
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return len(pieces)

    def close(self) -> None:
        for connection in self._idle:
            connection.close()


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """An HTTP/2 frame."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _pieces(rng: Random) -> list[bytes]:
    start = PREFACE + SETTINGS
    how = rng.randrange(9)
    if how == 0:
        return [rng.randbytes(rng.choice((1, 10, 5000))) for _ in range(3)]
    if how == 1:
        return [TLS_HELLO, rng.randbytes(100)]
    if how == 2:
        return [b"GET / HTTP/1.1\r\nHost: x\r\n", b"X: " + b"y" * rng.choice((10, 100_000)) + b"\r\n\r\n"]
    if how == 3:
        return [start[: rng.randrange(len(start))]]
    if how == 4:
        return [start, damaged(frame(1, 4, 1, rng.randbytes(40)), rng), frame(0, 1, 1, rng.randbytes(40))]
    if how == 5:  # headers that never end
        return [start, frame(1, 0, 1, b"\0\x01a" + b"\x7f\x80\x7f" + b"b" * 500), *[frame(9, 0, 1, b"c" * 16000)] * 6]
    if how == 6:  # frames of every kind with random content
        return [
            start,
            *(frame(rng.randrange(12), rng.randrange(256), rng.randrange(5), rng.randbytes(20)) for _ in "1234"),
        ]
    if how == 7:  # a length that lies
        return [start, b"\xff\xff\xff" + rng.randbytes(6), rng.randbytes(100)]
    return [start, *(frame(3, 0, n, b"\0\0\0\x08") for n in range(1, 40, 2))]  # resets of streams that never began


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=60)
