"""A server with a secret and TLS, and every verb of both its endpoints as a function."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from bench.harness.server import ServerProcess
from shuffle_api.errors import (
    ErrorCode,
    ShuffleError,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.interfaces import OptionValue
from shuffle_transport import messages
from shuffle_transport.blocks import Block, table_rows, totals_of
from shuffle_transport.channels.stream import FlightStream
from shuffle_transport.channels.wire import EXCHANGE_SCHEMA
from shuffle_transport.checksum import crc32c
from shuffle_transport.connect import flight_connection, flight_options
from shuffle_transport.control_client import ControlClient
from shuffle_transport.flight_client import FlightClient, PushTarget
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Credentials, Keyring
from tests.certificates import Party


@dataclass(frozen=True, slots=True)
class Secured:
    """A server with a secret and TLS, in which applications A and B have a committed shuffle each, number 1.

    They are registered as clients of protocol version 1 do it: under their bare names.
    """

    server: ServerProcess
    keys: Keyring
    secret_file: Path
    party: Party

    @property
    def options(self) -> dict[str, OptionValue]:
        return {
            "server": self.server.control,
            "timeout": 60,
            "retry": 2,
            "tls_ca": str(self.party.ca),
            "secret_file": str(self.secret_file),
        }

    def control(self, credentials: Credentials) -> ControlClient:
        return ControlClient(self.server.control, client="test", timeout=60, credentials=credentials)


Verb = Callable[[Secured, Credentials, str], Any]
A_KEY = pb.ShuffleKey(app="A", shuffle=1)


def _control(method: str, request: Callable[[str], Any]) -> Verb:
    def call(scene: Secured, credentials: Credentials, app: str) -> Any:
        with closing(scene.control(credentials)) as client:
            return client.call(method, request(app))

    return call


def _watch(scene: Secured, credentials: Credentials, app: str) -> Any:
    with closing(scene.control(credentials)) as client:
        return next(iter(client.stream("Watch", pb.WatchRequest(shuffle=key(app)))))


def _flight(action: Callable[[Any, Any, str], Any]) -> Verb:
    def call(scene: Secured, credentials: Credentials, app: str) -> Any:
        with flight_connection(scene.server.data, credentials.tls) as client:
            return action(client, flight_options(credentials, 60), app)

    return call


def key(app: str) -> pb.ShuffleKey:
    return pb.ShuffleKey(app=app, shuffle=1)


def _path(app: str) -> Any:
    return fl.FlightDescriptor.for_path(app, "1")


def do_put(scene: Secured, credentials: Credentials, app: str) -> Any:
    target = PushTarget(ShuffleId(app, 1), MapAttempt(0, 9), 2, "lz4")
    with closing(FlightClient(scene.server.data, timeout=60, credentials=credentials)) as client:
        blocks = [Block(0, crc32c(b"x"), 1, 1, b"x")]
        return client.push(target, blocks, first_block=0, end=totals_of(table_rows(blocks)), commit=True)


def _do_exchange(client: Any, options: Any, app: str) -> None:
    """Be a task that is reached through the worker, until it has said that one is."""
    command = pb.ExchangeCommand(protocol=1, relay=pb.RelayRoute(listen=token_bytes(16), app=app))
    descriptor = fl.FlightDescriptor.for_command(command.SerializeToString())
    writer, reader = client.do_exchange(descriptor, options)
    stream = FlightStream("the worker", reader, writer, reader.cancel)
    try:
        writer.begin(EXCHANGE_SCHEMA)
        _, said = stream.read() or (None, None)
        control = pb.ExchangeControl.FromString(said or b"")
        if control.HasField("error"):
            raise messages.typed_error(control.error)
        assert pb.RelayCall.FromString(control.message).peer
    finally:
        stream.abort()
        stream.close()


class _Greeting(fl.ClientAuthHandler):  # type: ignore[misc]  # pyarrow has no types
    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        outgoing.write(b"let me in")
        incoming.read()

    def get_token(self) -> bytes:
        return b""


CONTROL: dict[str, Verb] = {
    "Hello": _control("Hello", lambda app: pb.HelloRequest(protocol=1)),
    "RegisterApp": _control("RegisterApp", lambda app: pb.RegisterAppRequest(app=f"{app}", instance="i")),
    "Heartbeat": _control("Heartbeat", lambda app: pb.HeartbeatRequest(app=app)),
    "UnregisterApp": _control("UnregisterApp", lambda app: pb.UnregisterAppRequest(app=app)),
    "RegisterShuffle": _control(
        "RegisterShuffle",
        lambda app: pb.RegisterShuffleRequest(
            shuffle=pb.ShuffleKey(app=app, shuffle=9), partitions=1, maps=1, codec="lz4", content="spark"
        ),
    ),
    "UnregisterShuffle": _control("UnregisterShuffle", lambda app: pb.UnregisterShuffleRequest(shuffle=key(app))),
    "Place": _control("Place", lambda app: pb.PlaceRequest(shuffle=key(app))),
    "Locate": _control("Locate", lambda app: pb.LocateRequest(shuffle=key(app))),
    "ReportLost": _control("ReportLost", lambda app: pb.ReportLostRequest(shuffle=key(app), reason="test")),
    "Watch": _watch,
    "Status": _control("Status", lambda app: pb.StatusRequest(app=app)),
}
DATA: dict[str, Verb] = {
    "DoPut": do_put,
    "DoGet": _flight(
        lambda client, options, app: client.do_get(
            fl.Ticket(pb.GetTicket(shuffle=key(app), end_partition=2).SerializeToString()), options
        ).read_all()
    ),
    "GetFlightInfo": _flight(lambda client, options, app: client.get_flight_info(_path(app), options)),
    "GetSchema": _flight(lambda client, options, app: client.get_schema(_path(app), options)),
    "ListFlights": _flight(lambda client, options, app: list(client.list_flights(app.encode(), options))),
    "DoExchange": _flight(_do_exchange),
}
# Verbs that this server does not offer: credentials are checked first all the same.
NOT_OFFERED: dict[str, Verb] = {
    "DoAction": _flight(lambda client, options, app: list(client.do_action(fl.Action("x", b""), options))),
    "ListActions": _flight(lambda client, options, app: list(client.list_actions(options))),
    "Handshake": _flight(lambda client, options, app: client.authenticate(_Greeting(), options)),
}
VERBS = CONTROL | DATA | NOT_OFFERED
ABOUT_AN_APP = [name for name in VERBS if name not in {"Hello", *NOT_OFFERED}]


def code_of(error: BaseException) -> ErrorCode | None:
    """The error code behind an exception of ours or of Flight's, None if it has none."""
    if isinstance(error, ShuffleError):
        return error.code
    if isinstance(error, fl.FlightUnauthenticatedError) or "Detail: Unauthenticated" in str(error):
        return ErrorCode.UNAUTHENTICATED
    if isinstance(error, fl.FlightUnauthorizedError) or "Detail: Unauthorized" in str(error):
        return ErrorCode.PERMISSION_DENIED
    return None


def refusal(verb: str, scene: Secured, credentials: Credentials, app: str = "A") -> tuple[ErrorCode | None, str]:
    with pytest.raises((ShuffleError, pa.ArrowException, OSError, NotImplementedError)) as caught:
        VERBS[verb](scene, credentials, app)
    return code_of(caught.value), str(caught.value)
