"""The calls of an application: what drivers and tasks say to the servers, and what they make of the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pyarrow.flight as fl

from shuffle_api.errors import (
    AppExists,
    AppExpired,
    CommitMismatch,
    InvalidArgument,
    MapOutputLost,
    ShuffleError,
    StreamBroken,
    UnknownApp,
    UnknownShuffle,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput, ShuffleSpec, Totals
from shuffle_transport import messages
from shuffle_transport.blocks import Block, BlockBatch, add_rows, parse_table, table_rows
from shuffle_transport.checksum import BLOCK_ROW, crc32c
from shuffle_transport.control_client import ControlClient
from shuffle_transport.flight_client import PushTarget, put_command
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.faults.simulate.cluster import CONTROL
from tests.faults.simulate.locks import Here
from tests.faults.simulate.network import DataClient, Endpoint, Unreachable
from tests.faults.simulate.scheduler import Process

CALL_SECONDS = 4.0
verify = True  # a planted bug turns it off
FINAL = (AppExpired, AppExists, CommitMismatch, InvalidArgument, MapOutputLost, UnknownApp, UnknownShuffle)
"""Errors after which the same request is not repeated."""

Answer = TypeVar("Answer")


class Corrupt(Exception):
    """A block that was read does not match its checksum."""


def content(shuffle: ShuffleId, output: MapAttempt, partition: int) -> list[bytes]:
    """The blocks that this attempt writes into a partition: no other attempt's are like them."""
    count = (output.map + partition) % 3 + 1
    name = f"{shuffle.app} {shuffle.shuffle} {shuffle.generation} {output} partition {partition}"
    return [f"{name} block {at}".encode() * (at + 1) for at in range(count)]


def blocks_of(spec: ShuffleSpec, output: MapAttempt) -> list[Block]:
    """All of an attempt, in the order in which it is written."""
    found = []
    for partition in range(spec.partitions):
        for payload in content(spec.id, output, partition):
            found.append(Block(partition, crc32c(payload), len(payload), 1, payload))
    return found


@dataclass
class Located:
    """What a reader learns of a shuffle."""

    outputs: list[MapOutput]
    lost: set[int]
    addresses: dict[str, str]


class Client:
    """Calls from one process."""

    def __init__(self) -> None:
        self._control = ControlClient(CONTROL, client="simulated", timeout=CALL_SECONDS)

    # ------------------------------------------------------------------ driver

    def register_app(self, run: str, instance: str) -> None:
        self._control.call("RegisterApp", pb.RegisterAppRequest(app=run, instance=instance))

    def heartbeat(self, run: str) -> None:
        self._control.call("Heartbeat", pb.HeartbeatRequest(app=run))

    def unregister_app(self, run: str) -> None:
        self._control.call("UnregisterApp", pb.UnregisterAppRequest(app=run))

    def register_shuffle(self, spec: ShuffleSpec) -> ShuffleSpec:
        """The shuffle, with the generation that it has got."""
        reply = self._control.call("RegisterShuffle", messages.spec_message(spec))
        return replace(spec, id=replace(spec.id, generation=reply.generation))

    def unregister_shuffle(self, shuffle: ShuffleId) -> None:
        self._control.call("UnregisterShuffle", pb.UnregisterShuffleRequest(shuffle=messages.key_of(shuffle)))

    def report_lost(self, shuffle: ShuffleId, output: MapAttempt, reason: str) -> None:
        request = pb.ReportLostRequest(shuffle=messages.key_of(shuffle), reason=reason)
        request.outputs.append(messages.attempt_of(output))
        self._control.call("ReportLost", request)

    # ------------------------------------------------------------------ writer

    def place(self, shuffle: ShuffleId, avoid: Sequence[str]) -> list[tuple[str, str]]:
        """The workers that take map outputs, best first, and their addresses."""
        reply = self._control.call("Place", pb.PlaceRequest(shuffle=messages.key_of(shuffle), avoid=avoid))
        return [(worker.id, f"{worker.host}:{worker.port}") for worker in reply.workers]

    def put(self, address: str, spec: ShuffleSpec, output: MapAttempt) -> MapAttempt:
        """Push an attempt in one request, and commit it; the attempt that won."""
        blocks = blocks_of(spec, output)
        rows = table_rows(blocks)
        body = pb.WholePut(
            command=put_command(_target(spec, output)),
            end=messages.totals_message(add_rows(Totals(), rows)),
            table=rows.tobytes(),
            payload=b"".join(bytes(block.payload) for block in blocks),
        ).SerializeToString()
        committed = _data(address).call(lambda endpoint: endpoint.put(body))
        return messages.map_attempt(committed.output)

    def stream(self, address: str, spec: ShuffleSpec, output: MapAttempt) -> MapAttempt:
        """The same block by block, over a connection that may break."""
        command, blocks = put_command(_target(spec, output)), blocks_of(spec, output)
        writer = Here.scheduler.me().process

        def push(endpoint: Endpoint) -> pb.PutReply:
            try:
                return endpoint.push(command, _said(writer, blocks))
            except fl.FlightError:
                raise Unreachable from None

        return messages.map_attempt(_data(address).call(push).committed.output)

    # ------------------------------------------------------------------ reader

    def locate(self, shuffle: ShuffleId) -> Located:
        reply = self._control.call("Locate", pb.LocateRequest(shuffle=messages.key_of(shuffle)))
        return Located(
            list(map(messages.map_output, reply.outputs)),
            {output.output.map for output in reply.lost},
            {worker.id: f"{worker.host}:{worker.port}" for worker in reply.workers},
        )

    def read(self, address: str, spec: ShuffleSpec, output: MapAttempt) -> dict[int, list[bytes]]:
        """The blocks of an output by partition. Raises Corrupt, and what the worker answers."""
        ticket = pb.GetTicket(shuffle=messages.key_of(spec.id), end_partition=spec.partitions)
        ticket.maps.append(messages.attempt_of(output))
        body = _data(address).call(lambda endpoint: endpoint.get_whole(ticket))
        whole = pb.WholeGet.FromString(body)
        if whole.stream:
            return self._read_stream(address, ticket)
        owners = zip(np.frombuffer(whole.maps, np.int64), np.frombuffer(whole.attempts, np.int64), strict=True)
        if any((int(map_id), int(attempt)) != (output.map, output.attempt) for map_id, attempt in owners):
            raise Corrupt("a block of another output")
        return _checked(np.frombuffer(whole.table, BLOCK_ROW), whole.payload, messages.totals(whole.end))

    def _read_stream(self, address: str, ticket: pb.GetTicket) -> dict[int, list[bytes]]:
        for batch, said in _data(address).call(lambda endpoint: endpoint.get(ticket)):
            control = pb.GetControl.FromString(said)
            if control.HasField("error"):
                raise messages.typed_error(control.error)
            del batch
        raise StreamBroken("a small pull was answered with a stream, and the stream had nothing to say")


def _checked(rows: np.ndarray, payload: bytes, end: Totals) -> dict[int, list[bytes]]:
    parse_table(rows.tobytes(), 1 << 20)
    if add_rows(Totals(), rows) != end:
        raise Corrupt("the totals do not match")
    found: dict[int, list[bytes]] = {}
    at = 0
    for partition, checksum, length, _, _ in rows.tolist():
        piece = payload[at : at + length]
        if verify and crc32c(piece) != checksum:
            raise Corrupt(f"a block of partition {partition} does not match its checksum")
        found.setdefault(partition, []).append(piece)
        at += length
    return found


def _said(writer: Process, blocks: list[Block]) -> Iterator[tuple[pb.PutControl, BlockBatch | None]]:
    """A push, block by block."""
    scheduler, network = Here.scheduler, Here.network
    for block in blocks:
        scheduler.step()
        if not writer.alive or network.random.random() < network.trouble / 8:
            raise fl.FlightCancelledError("simulated")
        if writer.paused:
            scheduler.sleep(1.0)
        yield pb.PutControl(), BlockBatch(table_rows([block]), memoryview(block.payload))
    yield pb.PutControl(end=messages.totals_message(add_rows(Totals(), table_rows(blocks))), commit=True), None


def _target(spec: ShuffleSpec, output: MapAttempt) -> PushTarget:
    return PushTarget(spec.id, output, spec.partitions, spec.codec)


def _data(address: str) -> DataClient:
    return DataClient(address, timeout=CALL_SECONDS)


def patiently(call: Callable[[], Answer]) -> Answer:
    """Repeat a call until it is answered. Raises the FINAL errors."""
    while True:
        try:
            return call()
        except FINAL:
            raise
        except ShuffleError:
            Here.scheduler.sleep(0.4)
