"""A gRPC client of plain HTTP/2 frames, which does what no gRPC library does: calls without their message."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.shuffle_server.malformed.socket_attack import PREFACE, frame

DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
ACK = END_STREAM = 1
END_HEADERS = 4
CONTROL = "/flight_shuffle.v1.ShuffleControl/"


@dataclass
class Ended:
    """What has come for a call: its trailers as they came, `over` once its stream is."""

    trailers: bytes = b""
    over: bool = False


@dataclass
class HalfOpenClient:
    """One connection to `address`. Close it."""

    address: str
    calls: dict[int, Ended] = field(default_factory=dict)
    lost: bool = False

    def __post_init__(self) -> None:
        host, _, port = self.address.rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout=60)
        self._socket.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
        self._read = b""

    def begin(self, path: str | bytes, headers: Iterable[tuple[bytes, bytes]] = (), data: bytes = b"") -> Ended:
        """A call with these bytes of a message, which do not end its stream."""
        stream = 2 * len(self.calls) + 1
        path = path if isinstance(path, bytes) else path.encode()
        usual = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x")]
        usual += [(b"te", b"trailers"), (b"content-type", b"application/grpc")]
        block = b"".join(b"\0" + _text(name) + _text(value) for name, value in [*usual, *headers])
        sent = frame(HEADERS, END_HEADERS, stream, block) + (frame(DATA, 0, stream, data) if data else b"")
        self._socket.sendall(sent)
        self.calls[stream] = Ended()
        return self.calls[stream]

    def read(self, seconds: float) -> None:
        """Take what comes, for so long."""
        until = time.monotonic() + seconds
        while not self.lost and (left := until - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                return
            except OSError:
                data = b""
            self.lost = not data
            self._read += data
            while len(self._read) >= 9 + (length := int.from_bytes(self._read[:3], "big")):
                kind, flags = self._read[3:5]
                stream = int.from_bytes(self._read[5:9], "big")
                payload, self._read = self._read[9 : 9 + length], self._read[9 + length :]
                self._take(kind, flags, stream, payload)

    def wait_for(self, *calls: Ended, seconds: float = 60.0) -> None:
        """Until they are over."""
        until = time.monotonic() + seconds
        while not all(call.over for call in calls):
            assert time.monotonic() < until
            assert not self.lost
            self.read(0.1)

    def close(self) -> None:
        self._socket.close()

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind in (SETTINGS, PING) and not flags & ACK:
            self._socket.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
        elif stream in self.calls:
            call = self.calls[stream]
            if kind == HEADERS:
                call.trailers += payload
            call.over |= kind == RST_STREAM or (kind in (HEADERS, DATA) and bool(flags & END_STREAM))


def message(data: bytes) -> bytes:
    """As gRPC frames it."""
    return b"\0" + struct.pack(">I", len(data)) + data


def _text(data: bytes) -> bytes:
    """A string of HPACK, its length an integer with a prefix of 7 bits."""
    length = len(data)
    if length < 127:
        return bytes((length,)) + data
    length, out = length - 127, bytearray(b"\x7f")
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    return bytes([*out, length]) + data
