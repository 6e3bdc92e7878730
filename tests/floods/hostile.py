"""What hostile peers are made of: connections that send what no client sends, and are made again when they are cut."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import grpc
import pyarrow as pa
from google.protobuf.message import Message

from shuffle_api.errors import ShuffleError
from shuffle_transport.blocks import PUT_SCHEMA
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.tokens import app_token
from tests.floods.scene import Target
from tests.shuffle_server.half_open import CONTROL, HalfOpenClient, message
from tests.shuffle_server.malformed.socket_attack import frame

APP = "evil"
FLIGHT = "/arrow.flight.protocol.FlightService/"
REFUSED = (OSError, grpc.RpcError, pa.ArrowException, ShuffleError)  # how a server answers, and connections end
PAUSE_SECONDS = 0.01
OPTIONS: list[tuple[str, Any]] = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
]
FIRST_WINDOW = 65535  # of HTTP/2
WINDOW_UPDATE, SETTINGS_WINDOW = 8, 4


@dataclass
class Press:
    """One flood: whom it is for, when it is over, and how much was sent."""

    target: Target
    over: Callable[[], bool]
    sent: int = 0
    ends: ExitStack = field(default_factory=ExitStack)

    def steps(self, pause: float = PAUSE_SECONDS) -> Iterator[None]:
        """One after the other, until it is over."""
        while not self.over():
            yield
            time.sleep(pause)

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Of the one token that a tenant has."""
        with open(self.target.secret, "rb") as file:
            token = app_token(file.read().strip(), APP)
        return ("authorization", f"Bearer {token}"), ("flight-shuffle-app", APP)

    @property
    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        return [(name.encode(), value.encode()) for name, value in self.headers]

    def channel(self, address: str) -> grpc.Channel:
        return self.ends.enter_context(grpc.insecure_channel(address, OPTIONS))

    def call(self, method: str, request: Message, timeout: float = 10.0) -> bytes:
        """With the tenant's token; a refusal is raised."""
        with grpc.insecure_channel(self.target.control, OPTIONS) as channel:
            call = channel.unary_unary(CONTROL + method, None, None)
            answer: bytes = call(request.SerializeToString(), timeout=timeout, metadata=self.headers)
            return answer

    def register(self, maps: int = 100_000) -> pb.ShuffleKey:
        """The tenant's application and a shuffle of it with one partition."""
        key = pb.ShuffleKey(app=APP, shuffle=0)
        request = pb.RegisterShuffleRequest(shuffle=key, partitions=1, maps=maps, codec="none", content="opaque")
        with suppress(*REFUSED):  # they are there
            self.call("RegisterApp", pb.RegisterAppRequest(app=APP, instance="i"))
        with suppress(*REFUSED):
            self.call("RegisterShuffle", request)
        self.ends.callback(self._unregister)
        return key

    def _unregister(self) -> None:
        with suppress(*REFUSED):
            self.call("UnregisterApp", pb.UnregisterAppRequest(app=APP))


class Open(Protocol):
    """A connection; `lost` once it is cut."""

    lost: bool

    def close(self) -> None: ...


Connection = TypeVar("Connection", bound=Open)


class Crowd(Generic[Connection]):
    """So many connections, each made again when it is lost."""

    def __init__(self, press: Press, count: int, make: Callable[[], Connection]) -> None:
        self._press, self._count, self._make = press, count, make
        self._members: list[Connection] = []
        press.ends.callback(self._close)

    def members(self) -> Sequence[Connection]:
        for each in [each for each in self._members if each.lost]:
            each.close()
            self._members.remove(each)
        while len(self._members) < self._count and not self._press.over():
            try:
                self._members.append(self._make())
            except OSError:
                break
            self._press.sent += 1
        return tuple(self._members)

    def _close(self) -> None:
        for each in self._members:
            with suppress(OSError):
                each.close()


class Silent:
    """A connection that sends some bytes and then nothing."""

    def __init__(self, address: str, first: bytes = b"") -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=10)
        self.lost = False
        with suppress(OSError):
            self.socket.sendall(first)
        self.socket.setblocking(False)

    def look(self) -> None:
        """Take what has come; whether it was cut."""
        try:
            self.lost = self.socket.recv(1 << 16) == b""
        except BlockingIOError:
            pass
        except OSError:
            self.lost = True

    def send(self, data: bytes) -> int:
        """As much of it as goes without waiting."""
        try:
            return self.socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self.lost = True
            return 0

    def close(self) -> None:
        self.socket.close()


class Pourer(HalfOpenClient):
    """Sends a message as large as HTTP/2's windows let it, which it heeds."""

    def __post_init__(self) -> None:
        self._first, self._window, self._windows = FIRST_WINDOW, FIRST_WINDOW, dict[int, int]()
        super().__post_init__()

    def begin_message(self, path: str, size: int, headers: Sequence[tuple[bytes, bytes]] = ()) -> int:
        """A call whose message is to have so many bytes; its stream."""
        self.begin(path, headers, b"\0" + size.to_bytes(4, "big"))
        stream = 2 * len(self.calls) - 1
        self._window -= 5
        self._windows[stream] = self._first - 5 + self._windows.get(stream, 0)
        return stream

    def pour(self, stream: int, most: int, piece: int = 16384) -> int:
        """Send up to so many bytes in frames of `piece`; how many that were."""
        room = min(most, self._window, self._windows[stream])
        if room > 0:
            count, rest = divmod(room, piece)
            frames = frame(0, 0, stream, bytes(piece)) * count + (frame(0, 0, stream, bytes(rest)) if rest else b"")
            try:
                self._socket.settimeout(10)
                self._socket.sendall(frames)
            except OSError:
                self.lost = True
            self._window -= room
            self._windows[stream] -= room
        return max(0, room)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == WINDOW_UPDATE:
            more = int.from_bytes(payload, "big")
            if stream:
                self._windows[stream] = self._windows.get(stream, 0) + more
            else:
                self._window += more
        elif kind == 4 and not flags & 1:
            for at in range(0, len(payload), 6):
                if int.from_bytes(payload[at : at + 2], "big") == SETTINGS_WINDOW:
                    change = int.from_bytes(payload[at + 2 : at + 6], "big") - self._first
                    self._first += change
                    self._windows = {each: window + change for each, window in self._windows.items()}
        super()._take(kind, flags, stream, payload)


def flight_data(command: Message, schema: pa.Schema = PUT_SCHEMA) -> bytes:
    """The first message of a push or a channel, framed as gRPC frames it."""
    descriptor = b"\x08\x02" + _field(2, command.SerializeToString())
    head = schema.serialize().to_pybytes()[8:]  # without the length before it
    return message(_field(1, descriptor) + _field(2, head))


def ticket(request: pb.GetTicket) -> bytes:
    """The message of a pull, framed as gRPC frames it."""
    return message(_field(1, request.SerializeToString()))


def _field(number: int, data: bytes) -> bytes:
    """A protobuf field of bytes."""
    length, out = len(data), bytearray((number << 3 | 2,))
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    return bytes([*out, length]) + data
