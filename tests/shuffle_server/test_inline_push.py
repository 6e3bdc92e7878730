"""Small map outputs in one request, and what saves clients from asking: real servers, the protocol's own messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow.flight as fl
import pytest

from bench.harness.server import ServerProcess
from shuffle_api.errors import ErrorCode, InvalidArgument, UnknownShuffle
from shuffle_api.ids import MapAttempt
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.store.format import INDEX_ROW
from shuffle_transport import messages
from shuffle_transport.blocks import Block, table_rows, totals_of
from shuffle_transport.connect import flight_connection, flight_options
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import batch, block, output_files, read_all, write_map
from tests.shuffle_server.secured import Secured

TIMEOUT_S = 30.0
PAIRS = [(3, b"three"), (0, b"zero"), (3, b"three again")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One for all tests here; each removes what it wrote."""
    root = tmp_path_factory.mktemp("server")
    with ServerProcess(root / "data", root / "server.log") as process:
        yield process


@pytest.fixture
def handle(plugin: RemoteShuffle) -> Iterator[ShuffleHandle]:
    with plugin.master("app") as master:
        yield master.register_shuffle(8, 2)


@pytest.fixture
def client(server: ServerProcess) -> Iterator[fl.FlightClient]:
    with closing(fl.connect(f"grpc://{server.data}")) as connected:
        yield connected


@pytest.fixture
def control(server: ServerProcess) -> Iterator[ControlClient]:
    with closing(ControlClient(server.control, client="test", timeout=TIMEOUT_S)) as connected:
        yield connected


def nonce(server: ServerProcess) -> bytes:
    return (server.data_dir / "worker" / "nonce").read_bytes()


def request_for(handle: ShuffleHandle, pairs: list[tuple[int, bytes]], attempt: int = 0) -> pb.WholePut:
    blocks = [block(p, len(record).to_bytes(4, "little") + record) for p, record in pairs]
    rows = table_rows(blocks)
    return pb.WholePut(
        command=pb.PutCommand(
            protocol=1,
            shuffle=messages.key_of(handle.spec.id),
            output=pb.MapAttempt(map=0, attempt=attempt),
            partitions=handle.spec.partitions,
            codec=handle.spec.codec.partition(":")[0],
        ),
        end=messages.totals_message(totals_of(rows)),
        table=rows.tobytes(),
        payload=bytes(batch(blocks).payload),
    )


def put(client: fl.FlightClient, request: pb.WholePut) -> pb.Committed:
    options = fl.FlightCallOptions(timeout=TIMEOUT_S)
    [result] = client.do_action(("put", request.SerializeToString()), options)
    return pb.Committed.FromString(result.body.to_pybytes())


def code_of(error: pytest.ExceptionInfo[fl.FlightError]) -> ErrorCode:
    return ErrorCode(pb.Error.FromString(error.value.extra_info).code)


def test_what_was_put_is_read_and_nothing_else_is_left(
    client: fl.FlightClient, plugin: RemoteShuffle, handle: ShuffleHandle, server: ServerProcess
) -> None:
    request = request_for(handle, PAIRS)
    committed = put(client, request)
    assert (committed.output, committed.totals, committed.path) == (request.command.output, request.end, "")
    with plugin.reader(handle, range(8), range(1)) as reader:
        assert sorted(reader) == sorted(PAIRS)
    assert [path.name for path in output_files(server.data_dir) if path.suffix != ""] == ["0.0.out"]


def test_who_sees_the_files_is_told_where_it_lies(
    client: fl.FlightClient, handle: ShuffleHandle, server: ServerProcess
) -> None:
    request = request_for(handle, PAIRS)
    request.nonce = b"of another worker"
    assert put(client, request).path == ""
    request.nonce = nonce(server)
    path = Path(put(client, request).path)  # said a second time: the same output
    assert path.read_bytes().startswith(request.payload)


def test_put_twice_is_the_same_output(
    client: fl.FlightClient, plugin: RemoteShuffle, handle: ShuffleHandle, server: ServerProcess
) -> None:
    request, before = request_for(handle, PAIRS), server.status().bytes_pushed
    assert put(client, request) == put(client, request)
    assert server.status().bytes_pushed - before == len(request.payload)
    with plugin.reader(handle, range(8), range(1)) as reader:
        assert sorted(reader) == sorted(PAIRS)


def test_first_attempt_wins(client: fl.FlightClient, plugin: RemoteShuffle, handle: ShuffleHandle) -> None:
    with plugin.writer(handle, MapAttempt(0, 0)) as writer:
        writer.write(3, b"pushed")
        writer.commit()
    assert put(client, request_for(handle, PAIRS, attempt=1)).output.attempt == 0
    with plugin.reader(handle, range(8), range(1)) as reader:
        assert list(reader) == [(3, b"pushed")]


def test_nothing_at_all_can_be_put(client: fl.FlightClient, plugin: RemoteShuffle, handle: ShuffleHandle) -> None:
    assert put(client, request_for(handle, [])).totals.blocks == 0
    with plugin.reader(handle, range(8), range(1)) as reader:
        assert list(reader) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"end": pb.Totals(blocks=1)}, ErrorCode.COMMIT_MISMATCH),
        ({"table": b"1" * 33}, ErrorCode.INVALID_ARGUMENT),
        ({"table": b""}, ErrorCode.INVALID_ARGUMENT),
        ({"payload": b"short"}, ErrorCode.INVALID_ARGUMENT),
        ({"table": table_rows([Block(8, 0, 1, 1, b"x")]).tobytes(), "payload": b"x"}, ErrorCode.INVALID_ARGUMENT),
        ({"table": table_rows([Block(-1, 0, 1, 1, b"x")]).tobytes(), "payload": b"x"}, ErrorCode.INVALID_ARGUMENT),
        ({"payload": bytes((1 << 20) + 1)}, ErrorCode.INVALID_ARGUMENT),
        ({"command.relay": True}, ErrorCode.INVALID_ARGUMENT),
        ({"command.copy": True}, ErrorCode.INVALID_ARGUMENT),
        ({"command.first_block": 1}, ErrorCode.INVALID_ARGUMENT),
        ({"command.partitions": 7}, ErrorCode.INVALID_ARGUMENT),
        ({"command.protocol": messages.PROTOCOL + 1}, ErrorCode.PROTOCOL_MISMATCH),
        ({"command.shuffle.shuffle": 999}, ErrorCode.UNKNOWN_SHUFFLE),
    ],
)
def test_statement_that_cannot_be_is_refused_and_nothing_is_visible(
    changes: dict[str, object], code: ErrorCode, client: fl.FlightClient, plugin: RemoteShuffle, handle: ShuffleHandle
) -> None:
    request = request_for(handle, PAIRS)
    for name, value in changes.items():
        *path, last = name.split(".")
        target = request
        for part in path:
            target = getattr(target, part)
        if isinstance(value, pb.Totals):
            target.end.CopyFrom(value)
        else:
            setattr(target, last, value)
    with pytest.raises(fl.FlightError) as error:
        put(client, request)
    assert code_of(error) == code
    put(client, request_for(handle, PAIRS, attempt=1))
    with plugin.reader(handle, range(8), range(1)) as reader:
        assert sorted(reader) == sorted(PAIRS)


def test_only_the_applications_own_token_puts(secured: Secured) -> None:
    request = pb.WholePut(command=pb.PutCommand(shuffle=pb.ShuffleKey(app="A", shuffle=1)))
    credentials = secured.keys.for_app("B")
    with closing(flight_connection(secured.server.data, credentials.tls)) as connected:
        options = flight_options(credentials, TIMEOUT_S)
        with pytest.raises(fl.FlightUnauthorizedError, match="the token of application"):
            list(connected.do_action(("put", request.SerializeToString()), options))


@pytest.mark.parametrize("whole_below", [0, 39, 3 * 40], ids=["not asked for", "too large", "fits"])
def test_small_indexes_are_told_whole(
    whole_below: int, client: fl.FlightClient, handle: ShuffleHandle, server: ServerProcess
) -> None:
    put(client, request_for(handle, PAIRS))
    ticket = pb.GetTicket(shuffle=messages.key_of(handle.spec.id), first_partition=3, end_partition=4)
    ticket.maps.append(pb.MapAttempt(map=0))
    request = pb.LocateBlocksRequest(nonce=nonce(server), ticket=ticket, whole_below=whole_below)
    [result] = client.do_action(("hand-over.locate", request.SerializeToString()))
    located = pb.LocatedBlocks.FromString(result.body.to_pybytes())
    rows = np.frombuffer(located.index, INDEX_ROW)
    whole = whole_below == 3 * 40
    assert located.whole == whole
    assert rows["partition"].tolist() == ([0, 3, 3] if whole else [3, 3])


def test_the_only_worker_is_good_for_a_while(control: ControlClient, handle: ShuffleHandle) -> None:
    reply = control.call("Place", pb.PlaceRequest(shuffle=messages.key_of(handle.spec.id), host="somewhere"))
    assert reply.good_for_ms > 0
    avoided = pb.PlaceRequest(shuffle=messages.key_of(handle.spec.id), avoid=[reply.workers[0].id])
    assert control.call("Place", avoided).good_for_ms == 0


def test_many_shuffles_are_unregistered_at_once(
    control: ControlClient, plugin: RemoteShuffle, server: ServerProcess
) -> None:
    with plugin.master("app") as master:
        handles = [master.register_shuffle(8, 1) for _ in range(4)]
        for handle in handles:
            write_map(plugin, handle, 0)
        ended = [handle.spec.id.shuffle for handle in handles[:3]]
        generations = [handle.spec.id.generation for handle in handles[:3]]
        key = messages.key_of(handles[0].spec.id)
        odd = pb.UnregisterShuffleRequest(shuffle=key, more=ended[1:], generations=generations)
        with pytest.raises(InvalidArgument, match="2 further shuffles have 3 generations"):
            control.call("UnregisterShuffle", odd)
        other = pb.UnregisterShuffleRequest(shuffle=key, more=[handles[3].spec.id.shuffle], generations=[1])
        control.call("UnregisterShuffle", other)  # another generation of that one is over
        request = pb.UnregisterShuffleRequest(shuffle=key, more=ended[1:], generations=generations[1:])
        control.call("UnregisterShuffle", request)
        control.call("UnregisterShuffle", request)  # again is a no-op
        assert {messages.shuffle_id(s.shuffle) for s in server.status().shuffles} == {handles[3].spec.id}
        with pytest.raises(UnknownShuffle):
            read_all(plugin, handles[1])
        assert len(read_all(plugin, handles[3])) == 200
