"""The Python end: takes in pushes as a worker does, without a disk, and serves batches out of memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

from shuffle_api.values import Totals
from shuffle_transport import messages
from shuffle_transport.blocks import (
    CODEC_KEY,
    GET_SCHEMA,
    PUT_SCHEMA,
    Block,
    add_rows,
    get_batch,
    parse_batch,
    table_rows,
)
from shuffle_transport.checksum import crc32c
from shuffle_transport.freed_memory import keep_freed_memory
from shuffle_transport.granter import Granter
from shuffle_transport.pool import BufferPool
from shuffle_transport.proto import flight_shuffle_pb2 as pb

SCHEMA = GET_SCHEMA.with_metadata({CODEC_KEY: b"none"})
CORE = b"core"  # how Arrow's own client introduces itself, in a descriptor and a ticket


class SourceSink(fl.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Both clients get the same work done: batches are validated, counted and dropped, or served again and again."""

    def __init__(self) -> None:
        keep_freed_memory()  # as a worker does: else every batch is faulted in anew
        super().__init__("grpc+tcp://127.0.0.1:0")
        self._pool = BufferPool(1 << 30)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        if descriptor.command == CORE:
            writer.write(str(sum(size for size, _, _ in _received(reader))).encode())
            return
        totals = Totals()
        with Granter(self._pool, 10) as granter:
            for size, batch, control in _received(reader):
                for granted in (granter.received(size, control.backlog or None), granter.consumed(size)):
                    if granted is not None:
                        writer.write(pb.PutReply(granted=granted).SerializeToString())
                totals = add_rows(totals, batch.rows)
                if control.HasField("end"):
                    assert messages.totals(control.end) == totals
        committed = pb.Committed(output=pb.MapAttempt(), worker="bench", totals=messages.totals_message(totals))
        writer.write(pb.PutReply(committed=committed).SerializeToString())

    def do_get(self, context: Any, ticket: Any) -> Any:
        order = ticket.ticket if ticket.ticket.startswith(CORE) else pb.GetTicket.FromString(ticket.ticket).shuffle.app
        words = (order.decode() if isinstance(order, bytes) else order).split("-")
        return fl.GeneratorStream(SCHEMA, _served(*map(int, words[1:])))


def _received(reader: Any) -> Iterator[tuple[int, Any, pb.PutControl]]:
    none = parse_batch(_no_rows(), PUT_SCHEMA)
    while True:
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            return
        said = pb.PutControl.FromString(chunk.app_metadata.to_pybytes()) if chunk.app_metadata else pb.PutControl()
        batch = none if chunk.data is None else parse_batch(chunk.data, PUT_SCHEMA)
        yield batch.payload.nbytes, batch, said


def _served(size: int, block: int, count: int) -> Iterator[tuple[pa.RecordBatch, bytes]]:
    batch, rows = _batch(size, block)
    totals = Totals()
    for _ in range(count):
        totals = add_rows(totals, rows)
        yield batch, b""
    yield batch.slice(0, 0), pb.GetControl(end=messages.totals_message(totals)).SerializeToString()


@lru_cache
def _batch(size: int, block: int) -> tuple[pa.RecordBatch, np.ndarray]:
    data = np.random.default_rng(1).bytes(block)
    rows = table_rows([Block(n, crc32c(data), block, 0, data) for n in range(size // block)])
    zeros = np.zeros(len(rows), np.int64)
    return get_batch(SCHEMA, zeros, zeros, rows, data * len(rows)), rows


def _no_rows() -> pa.RecordBatch:
    return pa.record_batch([pa.array([], field.type) for field in PUT_SCHEMA], schema=PUT_SCHEMA)


def main() -> None:
    with SourceSink() as server:
        print(server.port, flush=True)
        sys.stdin.read()  # until whoever started this goes away


if __name__ == "__main__":
    main()
