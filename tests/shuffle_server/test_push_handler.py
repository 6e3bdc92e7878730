"""Push streams that do not behave: each is refused with a typed error, and nothing of it is visible."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from bench.harness.server import ServerProcess
from shuffle_api.errors import CommitMismatch, InvalidArgument, ProtocolMismatch, ShuffleError, UnknownShuffle
from shuffle_api.ids import MapAttempt
from shuffle_api.values import ShuffleHandle, Totals
from shuffle_plugins.remote import RemoteShuffle
from shuffle_transport import messages
from shuffle_transport.blocks import PUT_SCHEMA, Block, put_batch, table_rows, totals_of
from shuffle_transport.flight_client import FlightClient, PushTarget
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import block, read_all, write_map

BLOCKS = [block(0, b"zero"), block(1, b"one"), block(5, b"five")]


@pytest.fixture
def handle(plugin: RemoteShuffle) -> Iterator[ShuffleHandle]:
    with plugin.master("app") as master:
        yield master.register_shuffle(8, 4)


@pytest.fixture
def client(server: ServerProcess) -> Iterator[FlightClient]:
    flight = FlightClient(server.data, timeout=60)
    yield flight
    flight.close()


def target(handle: ShuffleHandle, map_id: int = 0, attempt: int = 0) -> PushTarget:
    return PushTarget(handle.spec.id, MapAttempt(map_id, attempt), handle.spec.partitions, handle.spec.codec)


def raw_push(server: ServerProcess, command: bytes, schema: pa.Schema, items: list[tuple[Any, bytes]]) -> pb.PutReply:
    """Send what no client of ours would; the worker's last reply."""
    with fl.connect(f"grpc://{server.data}") as client:
        writer, replies = client.do_put(
            fl.FlightDescriptor.for_command(command), schema, fl.FlightCallOptions(timeout=60)
        )
        for data, metadata in items:
            writer.write_metadata(metadata) if data is None else writer.write_with_metadata(data, metadata)
        writer.done_writing()
        last = pb.PutReply()
        while (reply := replies.read()) is not None:
            last = pb.PutReply.FromString(reply.to_pybytes())
        writer.close()
        return last


def command(handle: ShuffleHandle, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "protocol": 1,
        "shuffle": messages.key_of(handle.spec.id),
        "output": pb.MapAttempt(map=0, attempt=0),
        "partitions": handle.spec.partitions,
        "codec": handle.spec.codec,
    }
    return pb.PutCommand(**{**fields, **changes}).SerializeToString()


def end(blocks: list[Block], commit: bool = True) -> bytes:
    return pb.PutControl(end=messages.totals_message(totals_of(table_rows(blocks))), commit=commit).SerializeToString()


def payload(blocks: list[Block]) -> bytes:
    return b"".join(bytes(memoryview(b.payload)) for b in blocks)


def test_blocks_may_come_in_several_streams_and_repeated_ones_are_held_once(
    client: FlightClient, handle: ShuffleHandle, plugin: RemoteShuffle
) -> None:
    table = table_rows(BLOCKS)
    client.push(target(handle), BLOCKS[:2], first_block=0, end=totals_of(table[:2]), commit=False)
    reply = client.push(target(handle), BLOCKS, first_block=0, end=totals_of(table), commit=True)
    assert messages.totals(reply.committed.totals) == totals_of(table)
    again = client.push(target(handle), [], first_block=3, end=totals_of(table), commit=True)
    assert again.committed == reply.committed


def test_a_gap_in_the_block_numbers_is_refused(client: FlightClient, handle: ShuffleHandle) -> None:
    with pytest.raises(ShuffleError, match="goes on at block 1, the worker holds 0"):
        client.push(target(handle), BLOCKS[1:], first_block=1, end=totals_of(table_rows(BLOCKS)), commit=True)


@pytest.mark.parametrize("wrong", ["records", "digest", "blocks", "bytes"])
def test_a_statement_that_differs_is_refused_and_the_attempt_is_dropped(
    client: FlightClient, handle: ShuffleHandle, plugin: RemoteShuffle, wrong: str
) -> None:
    right = totals_of(table_rows(BLOCKS))
    stated = {name: getattr(right, name) for name in ("blocks", "bytes", "raw_bytes", "records", "digest")}
    stated[wrong] += 1
    with pytest.raises(CommitMismatch, match="the sender states"):
        client.push(target(handle), BLOCKS, first_block=0, end=Totals(**stated), commit=True)
    written = write_map(plugin, handle, 0, attempt=1)
    assert read_all(plugin, handle, range(1)) == written


def test_a_stream_without_its_end_commits_nothing(
    server: ServerProcess, handle: ShuffleHandle, plugin: RemoteShuffle
) -> None:
    items = [(put_batch(table_rows(BLOCKS), payload(BLOCKS)), b"")]
    reply = raw_push(server, command(handle), PUT_SCHEMA, items)
    assert "without its end" in reply.error.message
    written = write_map(plugin, handle, 0, attempt=1)
    assert read_all(plugin, handle, range(1)) == written


def bad_commands(handle: ShuffleHandle) -> list[tuple[bytes, type[ShuffleError]]]:
    key = pb.ShuffleKey
    return [
        (b"\xff\xfe garbage", InvalidArgument),
        (b"", ProtocolMismatch),
        (command(handle, protocol=messages.PROTOCOL + 1), ProtocolMismatch),
        (command(handle, shuffle=key(app="../../etc", shuffle=0)), InvalidArgument),
        (command(handle, shuffle=key(app=handle.spec.id.app, shuffle=99)), UnknownShuffle),
        (command(handle, output=pb.MapAttempt(map=-1, attempt=0)), InvalidArgument),
        (command(handle, output=pb.MapAttempt(map=4, attempt=0)), InvalidArgument),
        (command(handle, partitions=9), InvalidArgument),
        (command(handle, codec="zstd"), InvalidArgument),
    ]


def test_malformed_commands_are_refused_by_name(server: ServerProcess, handle: ShuffleHandle) -> None:
    for wrong, kind in bad_commands(handle):
        reply = raw_push(server, wrong, PUT_SCHEMA, [(None, end([]))])
        assert type(messages.typed_error(reply.error)) is kind, reply


def test_malformed_batches_are_refused_and_the_shuffle_goes_on(
    server: ServerProcess, handle: ShuffleHandle, plugin: RemoteShuffle
) -> None:
    good = put_batch(table_rows(BLOCKS), payload(BLOCKS))
    other = pa.record_batch({"x": [1, 2]})
    outside = put_batch(table_rows([block(8, b"x")]), b"x")
    negative = put_batch(table_rows([block(-1, b"x")]), b"x")
    shrunk = table_rows([block(0, b"xyz")])
    shrunk["raw_length"] = 1
    for schema, item in (
        (other.schema, (other, b"")),
        (PUT_SCHEMA, (outside, b"")),
        (PUT_SCHEMA, (negative, b"")),
        (PUT_SCHEMA, (put_batch(shrunk, b"xyz"), b"")),
        (PUT_SCHEMA, (good, b"\xff\xff not a control message")),
    ):
        reply = raw_push(server, command(handle), schema, [item, (None, end(BLOCKS))])
        assert isinstance(messages.typed_error(reply.error), InvalidArgument), reply
    written = write_map(plugin, handle, 0, attempt=1)
    assert read_all(plugin, handle, range(1)) == written


def test_tickets_that_name_what_is_not_there_are_refused(server: ServerProcess, handle: ShuffleHandle) -> None:
    key = messages.key_of(handle.spec.id)
    with fl.connect(f"grpc://{server.data}") as client:
        for ticket, words in (
            (b"garbage \xff", "no GetTicket message"),
            (pb.GetTicket(shuffle=key, first_partition=0, end_partition=9).SerializeToString(), "maps are committed"),
            (
                pb.GetTicket(shuffle=key, end_partition=9, maps=[pb.MapAttempt()]).SerializeToString(),
                "partitions \\[0, 9\\)",
            ),
            (pb.GetTicket(shuffle=pb.ShuffleKey(app="b")).SerializeToString(), "not registered"),
        ):
            with pytest.raises(fl.FlightError, match=words):
                client.do_get(fl.Ticket(ticket)).read_all()


def test_batches_that_arrow_has_compressed_are_refused(server: ServerProcess, handle: ShuffleHandle) -> None:
    blocks = [block(0, bytes(1 << 20))]
    batch = put_batch(table_rows(blocks), payload(blocks))
    for codec in ("zstd", "lz4"):
        options = fl.FlightCallOptions(write_options=pa.ipc.IpcWriteOptions(compression=codec), timeout=60)
        with fl.connect(f"grpc://{server.data}") as raw:
            descriptor = fl.FlightDescriptor.for_command(command(handle))
            writer, reader = raw.do_put(descriptor, PUT_SCHEMA, options)
            writer.write_batch(batch)
            writer.done_writing()
            reply = pb.PutReply.FromString(reader.read().to_pybytes())
            assert reply.error.code == pb.INVALID_ARGUMENT
            assert "compressed by Arrow" in reply.error.message
            writer.close()
