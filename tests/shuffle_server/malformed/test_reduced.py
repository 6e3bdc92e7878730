"""Single messages that did harm once, each reduced to what matters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow.flight as fl
import pytest

from bench.harness.server import ServerProcess
from shuffle_transport.blocks import put_batch, table_rows
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import block
from tests.shuffle_server.malformed.attack import FlightAttack, Target, check_control
from tests.shuffle_server.malformed.frames import SERVICE, batch_messages, command, field, flight_data
from tests.shuffle_server.malformed.health import health_of
from tests.shuffle_server.malformed.ipc_attack import IpcAttack, uncounted_nulls
from tests.shuffle_server.malformed.put_attack import END, SCHEMA, opening


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder: Path = tmp_path_factory.mktemp("reduced")
    with ServerProcess(folder / "data", folder / "server.log") as process:
        yield process


@pytest.fixture
def attack(server: ServerProcess) -> Iterator[FlightAttack]:
    flight = IpcAttack(Target(server.control, server.data))
    yield flight
    flight.close()


def target_of(attack: FlightAttack) -> pb.PutCommand:
    return pb.PutCommand(protocol=1, shuffle=attack.victims.key, output=pb.MapAttempt(), partitions=8, codec="none")


@pytest.mark.parametrize("rows", [2**34, 2**40, 2**62])
def test_nulls_are_not_counted_in_a_bitmap_that_is_too_short(
    server: ServerProcess, attack: FlightAttack, rows: int
) -> None:
    replies = attack.put([opening(target_of(attack)), uncounted_nulls(rows), flight_data(metadata=END)])
    assert replies[-1].error.code == pb.ErrorCode.INVALID_ARGUMENT
    assert "Buffer #0 too small" in replies[-1].error.message
    assert server.status().epoch == 1


def test_a_shuffle_of_two_thousand_million_partitions_is_listed_in_a_few_endpoints(
    server: ServerProcess, attack: FlightAttack
) -> None:
    key = pb.ShuffleKey(app=attack.victims.key.app, shuffle=2**40)
    request = pb.RegisterShuffleRequest(shuffle=key, partitions=2**31 - 1, maps=1, codec="none", content="records")
    attack.victims.call("RegisterShuffle", request, pb.RegisterShuffleReply)
    with fl.connect(f"grpc://{server.data}") as client:
        for info in client.list_flights():
            ranges = [pb.GetTicket.FromString(e.ticket.ticket) for e in info.endpoints]
            ends = [(r.first_partition, r.end_partition) for r in ranges]
            assert [first for first, _ in ends] == [0, *(end for _, end in ends[:-1])]
            assert ends[-1][1] == (2**31 - 1 if info.descriptor.path[1] == b"%d" % 2**40 else 8)
            assert len(ends) <= 1 << 14
    attack.victims.call("UnregisterShuffle", pb.UnregisterShuffleRequest(shuffle=key), pb.UnregisterShuffleReply)


@pytest.mark.parametrize("length", [9_000, 1 << 20])
def test_a_refusal_that_names_a_very_long_name_arrives(attack: FlightAttack, length: int) -> None:
    long = "n" * length
    with pytest.raises(grpc.RpcError) as refused:
        attack.victims.call("Heartbeat", pb.HeartbeatRequest(app=long), pb.HeartbeatReply)
    check_control(refused.value)
    ticket = pb.GetTicket(shuffle=pb.ShuffleKey(app=long)).SerializeToString()
    attack.get("DoGet", field(1, ticket))  # raises unless it is refused by a typed error, or served
    opened = target_of(attack)
    opened.shuffle.app = long
    [reply] = attack.put([flight_data(SCHEMA.header, descriptor=command(opened.SerializeToString()))])
    assert "bytes] " in reply.error.message


def test_a_control_request_that_is_no_message_is_refused_by_name(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.control) as channel:
        call = channel.unary_unary("/flight_shuffle.v1.ShuffleControl/Locate", None, None)
        with pytest.raises(grpc.RpcError) as refused:
            call(b"\xff\xff\xff", timeout=60)
    error = refused.value
    check_control(error)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "3 bytes that are no request of Locate" in (error.details() or "")


def test_without_a_token_a_bomb_is_not_even_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s" * 48)
    secret.chmod(0o600)
    rows = table_rows([block(0, b"")])
    rows["length"] = rows["raw_length"] = 256 << 20
    bomb = batch_messages(put_batch(rows, bytes(256 << 20)), "zstd")[0].data()
    assert len(bomb) < 64 << 10
    with ServerProcess(tmp_path / "data", tmp_path / "log", ("--secret-file", str(secret))) as guarded:
        before = health_of(guarded.pid).resident
        with grpc.insecure_channel(guarded.data) as channel:
            call: Any = channel.stream_stream(SERVICE + "DoPut", None, None)
            command = pb.PutCommand(protocol=1, shuffle=pb.ShuffleKey(app="a"), partitions=8, codec="none")
            with pytest.raises(grpc.RpcError) as refused:
                list(call(iter([opening(command), bomb]), timeout=60))
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert health_of(guarded.pid).resident < before + 64
