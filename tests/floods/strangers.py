"""Floods of peers without a token."""

from __future__ import annotations

import secrets
import ssl
import threading
from contextlib import suppress
from functools import partial

import grpc

from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.floods.hostile import FLIGHT, REFUSED, Crowd, Pourer, Press, Silent
from tests.shuffle_server.half_open import CONTROL, HalfOpenClient
from tests.shuffle_server.malformed.attack import Target as Attacked
from tests.shuffle_server.malformed.socket_attack import PREFACE, SETTINGS, TLS_HELLO, SocketAttack, frame

CALLS = 1000  # without their message, on one connection
HUGE = 1 << 30  # size that a message announces
AT_ONCE = 50


def headers_control(press: Press) -> None:
    _headers(press, press.target.control, CONTROL + "Hello")


def headers_data(press: Press) -> None:
    _headers(press, press.target.data, FLIGHT + "DoAction")


def streams_data(press: Press) -> None:
    _headers(press, press.target.data, FLIGHT + "DoPut")


def _headers(press: Press, address: str, path: str) -> None:
    crowd = Crowd(press, 32, partial(HalfOpenClient, address))
    for _ in press.steps():
        for client in crowd.members():
            with suppress(*REFUSED):
                if len(client.calls) < CALLS:
                    for _ in range(AT_ONCE):
                        client.begin(path)
                    press.sent += AT_ONCE
                client.read(0.001)


def connections(press: Press) -> None:
    """Which say nothing, or half a preface."""
    crowds = [Crowd(press, 300, partial(Silent, at, b"PRI * HT")) for at in (press.target.control, press.target.data)]
    for _ in press.steps():
        for crowd in crowds:
            for client in crowd.members():
                client.look()


def bodies_control(press: Press) -> None:
    _bodies(press, press.target.control, CONTROL + "Hello", 16 << 20)


def bodies_data(press: Press) -> None:
    _bodies(press, press.target.data, FLIGHT + "DoAction", HUGE)


def bodies_whole(press: Press) -> None:
    """Messages that come whole before a connection is cut, so that they are parsed."""
    _bodies(press, press.target.data, FLIGHT + "DoAction", 3 << 20)


def bodies_in_bytes(press: Press) -> None:
    """In frames of one byte, each of which the server keeps by itself."""
    _bodies(press, press.target.data, FLIGHT + "DoAction", HUGE, piece=1)


def _bodies(press: Press, address: str, path: str, size: int, piece: int = 16384, threads: int = 16) -> None:
    def pour() -> None:
        with suppress(*REFUSED):
            while not press.over():
                client = Pourer(address)
                left = size
                stream = client.begin_message(path, size)
                while left and not client.lost and not press.over() and not client.calls[stream].over:
                    sent = client.pour(stream, left, piece)
                    left -= sent
                    press.sent += sent
                    client.read(0.0005 if sent else 0.01)
                client.close()

    started = [threading.Thread(target=pour, daemon=True) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


def http2(press: Press) -> None:
    """Malformed."""
    attack = SocketAttack(Attacked(press.target.control, press.target.data))
    press.ends.callback(attack.close)
    for seed, _ in enumerate(press.steps(0.0)):
        with suppress(*REFUSED):
            press.sent += attack.send(seed)


def resets(press: Press) -> None:
    """Calls that are taken back at once."""
    crowds = [
        (Crowd(press, 2, partial(HalfOpenClient, press.target.control)), CONTROL + "Hello"),
        (Crowd(press, 2, partial(HalfOpenClient, press.target.data)), FLIGHT + "DoPut"),
    ]
    for _ in press.steps():
        for crowd, path in crowds:
            for client in crowd.members():
                with suppress(*REFUSED):
                    for _ in range(AT_ONCE):
                        client.begin(path)
                        client._socket.sendall(frame(3, 0, 2 * len(client.calls) - 1, b"\0\0\0\x08"))
                    press.sent += AT_ONCE
                    client.read(0.001)


def pings(press: Press) -> None:
    """Questions of HTTP/2 whose answers nobody reads."""
    first = PREFACE + SETTINGS
    asked = (frame(6, 0, 0, bytes(8)) + frame(4, 0, 0, b"\0\4\0\0\xff\xff")) * 500
    crowds = [Crowd(press, 8, partial(Silent, at, first)) for at in (press.target.control, press.target.data)]
    for _ in press.steps():
        for crowd in crowds:
            for client in crowd.members():
                press.sent += client.send(asked)


def monitoring(press: Press) -> None:
    """Requests that come byte by byte."""
    crowd = Crowd(press, 64, partial(Silent, press.target.metrics, b"GET /health HTTP/1.1\r\nX: "))
    for _ in press.steps(0.05):
        for client in crowd.members():
            client.send(b"a")
            client.look()


def handshakes(press: Press) -> None:
    """Of TLS: half of one, or a whole one and nothing behind it."""
    both = (press.target.control, press.target.data)
    crowds = [Crowd(press, 100, partial(Silent, at, TLS_HELLO[:40])) for at in both]
    crowds += [Crowd(press, 10, partial(_Greeted, at)) for at in both]
    for _ in press.steps():
        for crowd in crowds:
            for client in crowd.members():
                client.look()


class _Greeted(Silent):
    """TLS is spoken, and nothing is said."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        self.socket.settimeout(5)
        self.socket = context.wrap_socket(self.socket)
        self.socket.setblocking(False)

    def look(self) -> None:
        with suppress(ssl.SSLWantReadError):
            super().look()


def tokens(press: Press) -> None:
    """Made up, another one with each call, at both endpoints."""
    calls = [
        press.channel(press.target.control).unary_unary(CONTROL + "Hello", None, None),
        press.channel(press.target.data).unary_unary(FLIGHT + "ListActions", None, None),
    ]
    for _ in press.steps():
        made = [
            call.future(
                pb.HelloRequest(protocol=1).SerializeToString() if call is calls[0] else b"",
                timeout=10,
                metadata=(("authorization", f"Bearer {secrets.token_hex(32)}"), ("flight-shuffle-app", "evil")),
            )
            for call in calls
            for _ in range(AT_ONCE)
        ]
        for each in made:
            with suppress(*REFUSED):
                each.result()
        press.sent += len(made)


def compressed_control(press: Press) -> None:
    """By gRPC: a few KiB that would become 15 MiB."""
    _compressed(press, press.target.control, CONTROL + "Hello", 15 << 20)


def compressed_data(press: Press) -> None:
    """By gRPC: 250 KiB that become 256 MiB."""
    _compressed(press, press.target.data, FLIGHT + "DoAction", 256 << 20)


def _compressed(press: Press, address: str, path: str, size: int) -> None:
    call = press.channel(address).unary_unary(path, None, None)
    data = bytes(size)
    for _ in press.steps():
        with suppress(*REFUSED):
            call(data, timeout=10, compression=grpc.Compression.Gzip)
        press.sent += 1
