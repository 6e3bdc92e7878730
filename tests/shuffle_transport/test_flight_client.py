"""The Flight client against workers that misbehave: each fault ends in its typed error, within the deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from shuffle_api.errors import (
    BlockCorrupt,
    CommitMismatch,
    DeadlineExceeded,
    InvalidArgument,
    MapOutputLost,
    ProtocolMismatch,
    ServerUnreachable,
    ShuffleError,
    StorageFull,
    StreamBroken,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import Totals
from shuffle_transport import messages
from shuffle_transport.blocks import GET_SCHEMA, Block, get_batch, table_rows, totals_of
from shuffle_transport.checksum import crc32c
from shuffle_transport.credits import INITIAL_CREDIT
from shuffle_transport.flight_client import FlightClient, PushTarget
from shuffle_transport.proto import flight_shuffle_pb2 as pb

TARGET = PushTarget(ShuffleId("app", 0), MapAttempt(0, 0), 4, "none")
Put = Callable[[Any, Any], None]


class ScriptedWorker(fl.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Answers a push with `put(reader, writer)`, a pull with the items of `get` (batch, metadata)."""

    def __init__(self, put: Put | None = None, get: list[Any] | None = None, schema: pa.Schema = GET_SCHEMA) -> None:
        super().__init__("grpc+tcp://127.0.0.1:0")
        self.put, self.items, self.schema = put, get or [], schema

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        assert self.put is not None
        self.put(reader, writer)

    def do_get(self, context: Any, ticket: Any) -> fl.GeneratorStream:
        def items() -> Iterator[Any]:
            for item in self.items:
                if isinstance(item, Exception):
                    raise item
                yield item

        return fl.GeneratorStream(self.schema, items())


@contextmanager
def client_of(worker: ScriptedWorker, timeout: float = 60) -> Iterator[FlightClient]:
    with worker:
        client = FlightClient(f"127.0.0.1:{worker.port}", timeout=timeout)
        try:
            yield client
        finally:
            client.close()


def some(*payloads: bytes) -> list[Block]:
    return [Block(0, crc32c(p), len(p), 1, p) for p in payloads]


def push(client: FlightClient, blocks: list[Block], commit: bool = True) -> pb.PutReply:
    return client.push(TARGET, blocks, first_block=0, end=totals_of(table_rows(blocks)), commit=commit)


def reply(writer: Any, **fields: Any) -> None:
    writer.write(pb.PutReply(**fields).SerializeToString())


def committed(*payloads: bytes, map_id: int = 0) -> pb.Committed:
    totals = messages.totals_message(totals_of(table_rows(some(*payloads))))
    return pb.Committed(output=pb.MapAttempt(map=map_id), worker="w", totals=totals)


def drain(reader: Any) -> list[Any]:
    chunks = []
    while True:
        try:
            chunks.append(reader.read_chunk())
        except StopIteration:
            return chunks


def test_a_sender_never_exceeds_its_credit() -> None:
    piece = bytes(INITIAL_CREDIT // 2)
    received: list[int] = []

    def put(reader: Any, writer: Any) -> None:
        while True:
            chunk = reader.read_chunk()
            if chunk.data is None or not chunk.data.num_rows:
                break
            received.append(sum(len(v) for v in chunk.data.column("payload").to_pylist()))
            reply(writer, granted=sum(received) + INITIAL_CREDIT)
        reply(writer, committed=committed(*[piece] * 8), blocks_held=8)
        drain(reader)

    with client_of(ScriptedWorker(put)) as client:
        assert push(client, some(*[piece] * 8)).committed.worker == "w"
    assert sum(received) == 8 * len(piece)


def test_a_sender_without_credit_waits_for_it() -> None:
    more = threading.Event()
    first, second = threading.Event(), threading.Event()

    def put(reader: Any, writer: Any) -> None:
        reader.read_chunk()
        first.set()
        more.wait(120)
        reply(writer, granted=4 * INITIAL_CREDIT)
        reader.read_chunk()
        second.set()
        reply(writer, committed=committed(*[bytes(2 * INITIAL_CREDIT)] * 2))
        drain(reader)

    with client_of(ScriptedWorker(put)) as client, ThreadPoolExecutor(1) as pool:
        pushing = pool.submit(push, client, some(*[bytes(2 * INITIAL_CREDIT)] * 2))
        assert first.wait(60)
        assert not second.wait(0.3)  # the credit is spent
        more.set()
        assert pushing.result(60).committed.worker == "w"


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (committed(b"a", map_id=7), ProtocolMismatch, "speaks of a commit of map 7"),
        (committed(b"b"), CommitMismatch, "this sender states"),
        (pb.Committed(), CommitMismatch, "this sender states"),
    ],
)
def test_the_answer_to_another_commit_is_refused(answer: pb.Committed, error: type[ShuffleError], says: str) -> None:
    def put(reader: Any, writer: Any) -> None:
        reply(writer, committed=answer)
        drain(reader)

    with client_of(ScriptedWorker(put)) as client, pytest.raises(error, match=says):
        push(client, some(b"a"))


def test_an_error_in_a_reply_is_raised_as_itself_while_the_sender_waits_for_credit() -> None:
    def put(reader: Any, writer: Any) -> None:
        reader.read_chunk()
        reply(writer, error=messages.error_message(StorageFull("/data is full", remedy="free space")))
        drain(reader)

    with client_of(ScriptedWorker(put)) as client, pytest.raises(StorageFull, match="/data is full"):
        push(client, some(*[bytes(INITIAL_CREDIT)] * 4))


def test_a_worker_that_hangs_up_without_an_answer_leaves_the_outcome_unknown() -> None:
    with client_of(ScriptedWorker(lambda reader, writer: None)) as client, pytest.raises(StreamBroken):
        push(client, some(b"x"))


def test_a_worker_that_never_grants_ends_at_the_deadline() -> None:
    over = threading.Event()

    def put(reader: Any, writer: Any) -> None:
        over.wait(120)

    with client_of(ScriptedWorker(put), timeout=0.5) as client:
        with pytest.raises(DeadlineExceeded, match=r"127\.0\.0\.1"):
            push(client, some(*[bytes(INITIAL_CREDIT)] * 4))
        over.set()


def test_a_reply_that_is_no_message_is_refused() -> None:
    def put(reader: Any, writer: Any) -> None:
        drain(reader)
        writer.write(b"\xff\xff\xff")

    with client_of(ScriptedWorker(put)) as client, pytest.raises(InvalidArgument, match="no PutReply"):
        push(client, some(b"x"))


def test_an_unreachable_worker_is_named() -> None:
    worker = ScriptedWorker()
    address = f"127.0.0.1:{worker.port}"
    worker.shutdown()
    client = FlightClient(address, timeout=60)
    with pytest.raises(ServerUnreachable, match=address):
        push(client, some(b"x"))
    client.close()


# ---------------------------------------------------------------------- pull


def batch(*payloads: bytes, checksum: int | None = None) -> pa.RecordBatch:
    rows = table_rows(some(*payloads))
    if checksum is not None:
        rows["crc32c"][-1] = checksum
    zeros = np.zeros(len(payloads), np.int64)
    return get_batch(GET_SCHEMA, zeros, zeros, rows, b"".join(payloads))


def end(*payloads: bytes) -> tuple[pa.RecordBatch, bytes]:
    totals = totals_of(table_rows(some(*payloads)))
    return batch(), pb.GetControl(end=messages.totals_message(totals)).SerializeToString()


def pull(client: FlightClient) -> list[Any]:
    return [p if isinstance(p, ShuffleError) else bytes(p.payload) for p in client.pull(pb.GetTicket())]


def test_blocks_arrive_in_order_up_to_the_end_message() -> None:
    with client_of(ScriptedWorker(get=[(batch(b"a", b"bc"), b""), (batch(b""), b""), end(b"a", b"bc", b"")])) as client:
        assert pull(client) == [b"a", b"bc", b""]


def test_a_lost_output_takes_its_place_and_the_rest_follows() -> None:
    lost = pb.GetControl(error=messages.error_message(MapOutputLost("gone", output=MapAttempt(3, 1))))
    items = [(batch(b"a"), b""), (batch(), lost.SerializeToString()), (batch(b"b"), b""), end(b"a", b"b")]
    with client_of(ScriptedWorker(get=items)) as client:
        first, error, second = pull(client)
    assert (first, second) == (b"a", b"b")
    assert isinstance(error, MapOutputLost)
    assert error.output == MapAttempt(3, 1)


@pytest.mark.parametrize(
    ("items", "error", "says"),
    [
        ([(batch(b"a"), b"")], StreamBroken, "after 1 blocks without its end message"),
        ([(batch(b"a"), b""), end(b"a", b"b")], BlockCorrupt, "says it served"),
        ([(batch(b"a"), b""), end(b"b")], BlockCorrupt, "says it served"),
        ([(batch(b"a", b"bc", checksum=1), b"")], BlockCorrupt, "0x00000001"),
        ([(batch(b"a"), b"\xff\xff")], InvalidArgument, "no GetControl"),
        ([(batch(b"a"), b""), RuntimeError("the worker broke")], StreamBroken, "the worker broke"),
    ],
)
def test_a_pull_that_is_not_whole_says_why(items: list[Any], error: type[ShuffleError], says: str) -> None:
    with client_of(ScriptedWorker(get=items)) as client, pytest.raises(error, match=says):
        pull(client)


def test_a_table_of_something_else_is_no_worker() -> None:
    table = pa.record_batch([pa.array([1])], names=["x"])
    with client_of(ScriptedWorker(get=[table], schema=table.schema)) as client, pytest.raises(ProtocolMismatch):
        pull(client)


def test_a_reader_that_stops_early_leaves_the_connection_usable() -> None:
    many = [(batch(bytes(1 << 20)), b"")] * 50
    with client_of(ScriptedWorker(get=many)) as client:
        for _ in range(3):
            pulled = client.pull(pb.GetTicket())
            next(pulled)
            pulled.close()  # type: ignore[attr-defined]


def test_totals_of_nothing_are_zero() -> None:
    with client_of(ScriptedWorker(get=[end()])) as client:
        assert pull(client) == []
    assert totals_of(table_rows([])) == Totals()
