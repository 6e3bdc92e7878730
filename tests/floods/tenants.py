"""Floods of an application with a right token."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
from google.protobuf.message import Message

from shuffle_transport import messages
from shuffle_transport.blocks import PUT_SCHEMA, Block, put_batch, table_rows, totals_of
from shuffle_transport.channels.wire import EXCHANGE_SCHEMA
from shuffle_transport.checksum import crc32c
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.floods.hostile import APP, FLIGHT, REFUSED, Crowd, Pourer, Press, flight_data, ticket
from tests.floods.strangers import AT_ONCE, CALLS
from tests.shuffle_server.half_open import CONTROL, HalfOpenClient, message

BLOCK = 8 << 20
LIST_ACTIONS = FLIGHT + "ListActions"


def introduced(press: Press, address: str) -> Pourer:
    """A connection of which a call was let in."""
    client = Pourer(address)
    client.wait_for(client.begin(LIST_ACTIONS, press.raw_headers, message(b"")), seconds=10)
    return client


def _command(key: pb.ShuffleKey, number: int) -> pb.PutCommand:
    return pb.PutCommand(protocol=1, shuffle=key, output=pb.MapAttempt(map=number), partitions=1, codec="none")


def _streams(press: Press, path: str, first: Iterable[bytes], connections: int, each: int) -> None:
    """Calls that begin with a message and say nothing more, until each connection has so many."""
    crowd, numbered = Crowd(press, connections, partial(HalfOpenClient, press.target.data)), iter(first)
    for _ in press.steps():
        for client in crowd.members():
            with suppress(*REFUSED):
                if len(client.calls) < each:
                    for _ in range(10):
                        client.begin(path, press.raw_headers, next(numbered))
                    press.sent += 10
                client.read(0.001)


def idle_pushes(press: Press) -> None:
    """Which hold the credit that they were granted."""
    key = press.register()
    first = (flight_data(_command(key, number)) for number in range(1 << 30))
    _streams(press, FLIGHT + "DoPut", first, 4, 100)


def silent_streams(press: Press) -> None:
    """Pushes whose first message does not come."""
    _streams(press, FLIGHT + "DoPut", iter(lambda: b"", None), 4, 2 * CALLS)


def silent_calls(press: Press) -> None:
    """Pulls whose message does not come."""
    _streams(press, FLIGHT + "DoGet", iter(lambda: b"", None), 4, CALLS)


def listens(press: Press) -> None:
    """Tasks that are reached through the worker."""
    press.register()
    _streams(press, FLIGHT + "DoExchange", iter(_listening, None), 4, CALLS)


def _listening() -> bytes:
    route = pb.RelayRoute(listen=secrets.token_bytes(16), app=APP)
    return flight_data(pb.ExchangeCommand(protocol=1, relay=route), EXCHANGE_SCHEMA)


def listen(press: Press, client: HalfOpenClient) -> None:
    """Be a task that is reached through the worker, on a connection to it."""
    client.begin(FLIGHT + "DoExchange", press.raw_headers, _listening())


def attempts(press: Press) -> None:
    """Which are begun and never committed."""
    key = press.register()
    data = b"y" * 10
    rows = table_rows([Block(0, crc32c(data), len(data), 1, data)])
    with _flight(press) as client:
        for number, _ in enumerate(press.steps(0.002)):
            with suppress(*REFUSED):
                descriptor = fl.FlightDescriptor.for_command(_command(key, number).SerializeToString())
                writer, reader = client.do_put(descriptor, PUT_SCHEMA, _options(press, 10))
                writer.write_batch(put_batch(rows, data))
                writer.done_writing()
                reader.read()
                writer.close()
            press.sent += 1


def pulls(press: Press) -> None:
    """Of a block that nobody reads: the windows stay shut."""
    key = press.register()
    data = bytes(BLOCK)
    rows = table_rows([Block(0, crc32c(data), BLOCK, 1, data)])
    with _flight(press) as client:
        last = pb.PutControl(end=messages.totals_message(totals_of(rows)), commit=True)
        descriptor = fl.FlightDescriptor.for_command(_command(key, 0).SerializeToString())
        writer, reader = client.do_put(descriptor, PUT_SCHEMA, _options(press, 60))
        writer.write_batch(put_batch(rows, data))
        writer.write_metadata(last.SerializeToString())
        writer.done_writing()
        while (reply := reader.read()) is not None:
            if pb.PutReply.FromString(reply.to_pybytes()).HasField("committed"):
                break
        writer.close()
    wanted = ticket(pb.GetTicket(shuffle=key, first_partition=0, end_partition=1))
    _streams(press, FLIGHT + "DoGet", iter(lambda: wanted, None), 4, 100)


def bodies(press: Press) -> None:
    """Messages that do not end, on connections whose token was good."""
    size = 1 << 30
    crowd = Crowd(press, 8, partial(introduced, press, press.target.data))
    for _ in press.steps(0.0):
        for client in crowd.members():
            with suppress(*REFUSED):
                last = 2 * len(client.calls) - 1
                if last == 1 or client.calls[last].over:
                    last = client.begin_message(FLIGHT + "DoAction", size, press.raw_headers)
                press.sent += client.pour(last, 1 << 20)
                client.read(0.001)


def connections(press: Press) -> None:
    """Of which a call was let in each."""
    both = (press.target.control, press.target.data)
    crowds = [Crowd(press, 400, partial(called, press, at)) for at in both]
    for _ in press.steps():
        for crowd in crowds:
            for client in crowd.members():
                with suppress(*REFUSED):
                    client.read(0.0001)


def called(press: Press, address: str) -> HalfOpenClient:
    path, asked = CONTROL + "Hello", pb.HelloRequest(protocol=1).SerializeToString()
    if address == press.target.data:
        path, asked = LIST_ACTIONS, b""
    client = HalfOpenClient(address)
    client.begin(path, press.raw_headers, message(asked))
    return client


def watches(press: Press) -> None:
    key = press.register()
    call = press.channel(press.target.control).unary_stream(CONTROL + "Watch", None, None)
    request = pb.WatchRequest(shuffle=key).SerializeToString()
    opened: list[Any] = []
    for _ in press.steps():
        opened = [each for each in opened if each.is_active()]
        opened += [call(request, metadata=press.headers) for _ in range(AT_ONCE if len(opened) < 2 * CALLS else 0)]
        press.sent += AT_ONCE
    for each in opened:
        each.cancel()


def registrations(press: Press) -> None:
    """Shuffles and runs, each as large as a shuffle may be."""
    press.register()
    requests: list[tuple[str, Message]] = []
    for number in range(1, AT_ONCE):
        name = f"{APP}~{secrets.token_hex(8)}"
        requests.append(("RegisterApp", pb.RegisterAppRequest(app=name, instance="i")))
        for partitions, maps in ((100_000, 100_000), (2**31 - 1, 2**31 - 1)):
            key = pb.ShuffleKey(app=APP, shuffle=number * 2 + partitions % 2)
            requests.append(
                (
                    "RegisterShuffle",
                    pb.RegisterShuffleRequest(
                        shuffle=key, partitions=partitions, maps=maps, codec="none", content="opaque"
                    ),
                )
            )
    _storm(press, requests)
    for _, request in requests:
        if isinstance(request, pb.RegisterAppRequest):
            with suppress(*REFUSED):
                press.call("UnregisterApp", pb.UnregisterAppRequest(app=request.app))


def statuses(press: Press) -> None:
    press.register()
    _storm(press, [("Status", pb.StatusRequest())] * AT_ONCE)


def heartbeats(press: Press) -> None:
    press.register()
    _storm(press, [("Heartbeat", pb.HeartbeatRequest(app=APP))] * 4 * AT_ONCE)


def reports(press: Press) -> None:
    """Of outputs that are not lost."""
    key = press.register()
    lost = pb.ReportLostRequest(shuffle=key, outputs=[pb.MapAttempt(map=1)], reason="x" * 1000)
    _storm(press, [("ReportLost", lost)] * AT_ONCE)


def lookups(press: Press) -> None:
    key = press.register()
    asked = [("Locate", pb.LocateRequest(shuffle=key)), ("Place", pb.PlaceRequest(shuffle=key))]
    _storm(press, asked * AT_ONCE)


def _storm(press: Press, requests: Iterable[tuple[str, Message]]) -> None:
    """All of them at once, again and again."""
    channel, requests = press.channel(press.target.control), tuple(requests)
    for _ in press.steps(0.0):
        made = [
            channel.unary_unary(CONTROL + method, None, None).future(
                request.SerializeToString(), timeout=10, metadata=press.headers
            )
            for method, request in requests
        ]
        for each in made:
            with suppress(*REFUSED):
                each.result()
        press.sent += len(made)


def compressed(press: Press) -> None:
    """By gRPC: 250 KiB that become 256 MiB."""
    data = bytes(256 << 20)
    channel = press.channel(press.target.data)
    with suppress(*REFUSED):
        list(channel.unary_stream(LIST_ACTIONS, None, None)(b"", metadata=press.headers, timeout=10))
    call = channel.unary_unary(FLIGHT + "DoAction", None, None)
    for _ in press.steps():
        with suppress(*REFUSED):
            call(data, timeout=10, metadata=press.headers, compression=grpc.Compression.Gzip)
        press.sent += 1


def arrow_compressed(press: Press) -> None:
    """By Arrow: batches of zeros."""
    key, size = press.register(), 256 << 20
    rows = np.zeros(1, table_rows([Block(0, 0, 1, 1, b"x")]).dtype)
    rows["length"] = rows["raw_length"] = size
    rows["records"] = 1
    batch = put_batch(rows, bytes(size))
    with _flight(press) as client:
        for number, _ in enumerate(press.steps()):
            with suppress(*REFUSED):
                descriptor = fl.FlightDescriptor.for_command(_command(key, number).SerializeToString())
                options = _options(press, 10, write_options=pa.ipc.IpcWriteOptions(compression="zstd"))
                writer, reader = client.do_put(descriptor, PUT_SCHEMA, options)
                writer.write_batch(batch)
                writer.done_writing()
                reader.read()
                writer.close()
            press.sent += 1


def _flight(press: Press) -> Any:
    return fl.connect(f"grpc+tcp://{press.target.data}")


def _options(press: Press, timeout: float, **others: Any) -> fl.FlightCallOptions:
    return fl.FlightCallOptions(headers=press.raw_headers, timeout=timeout, **others)
