"""Both ends of push and pull: `FlightClient`, as the `remote` plugin uses it, and a worker that keeps nothing.

What is left of a worker without its store: checks, credit from the pool, totals and digest, the end message.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

from shuffle_api.errors import ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import Totals
from shuffle_transport import messages
from shuffle_transport.bench.data import ring
from shuffle_transport.bench.job import Job
from shuffle_transport.bench.raw_server import ANY, chunks
from shuffle_transport.blocks import (
    CODEC_KEY,
    GET_SCHEMA,
    PUT_SCHEMA,
    Block,
    add_rows,
    get_batch,
    parse_batch,
    table_rows,
    totals_of,
)
from shuffle_transport.flight_client import FlightClient, PushTarget
from shuffle_transport.granter import Granter
from shuffle_transport.pool import BufferPool
from shuffle_transport.proto import flight_shuffle_pb2 as pb

TARGET = PushTarget(ShuffleId("bench", 0), MapAttempt(0, 0), 64, "none")
PREPARE = "prepare"
TIMEOUT_S = 60.0
SCHEMA = GET_SCHEMA.with_metadata({CODEC_KEY: b"none"})


class RemoteSide:
    """The client of a `RemoteServer`. Blocks and their totals exist before a push, as a task's writer has them."""

    def __init__(self, port: int) -> None:
        self._client = FlightClient(f"127.0.0.1:{port}")
        self._preparer = fl.connect(f"grpc+tcp://127.0.0.1:{port}")

    def put(self, job: Job) -> None:
        blocks, totals = _attempt(job)
        self._client.push(TARGET, blocks, first_block=0, end=totals, commit=True)

    def get(self, job: Job) -> None:
        (number,) = self._preparer.do_action(fl.Action(PREPARE, job.dump()))
        ticket = pb.GetTicket(shuffle=messages.key_of(ShuffleId("bench", int(number.body.to_pybytes()))))
        for pulled in self._client.pull(ticket):
            if isinstance(pulled, ShuffleError):
                raise pulled

    def close(self) -> None:
        self._client.close()
        self._preparer.close()


@lru_cache(maxsize=2)
def _attempt(job: Job) -> tuple[list[Block], Totals]:
    prepared = ring(job)
    blocks = [block for i in range(job.count) for block in _blocks(prepared[i % len(prepared)].payload, job.block)]
    return blocks, totals_of(table_rows(blocks))


def _blocks(payload: memoryview, block: int) -> list[Block]:
    pieces = (payload[at : at + block] for at in range(0, len(payload), block))
    return [Block(n % 64, 0, block, 1, piece) for n, piece in enumerate(pieces)]


class RemoteServer(fl.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Takes pushes in and drops them; serves pulls of jobs that the action `prepare` has named by a number."""

    def __init__(self, pool: BufferPool) -> None:
        super().__init__(ANY)
        self._pool = pool
        self._jobs: dict[int, Job] = {}
        self._numbers = itertools.count()

    def do_put(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.FlightMetadataWriter,
    ) -> None:
        command = messages.parse(pb.PutCommand, descriptor.command)
        totals = Totals()
        with Granter(self._pool, TIMEOUT_S) as granter:
            for chunk in chunks(reader):
                if chunk.data is not None and chunk.data.num_rows:
                    batch = parse_batch(chunk.data, PUT_SCHEMA)
                    totals = add_rows(totals, batch.rows)
                    size = batch.payload.nbytes
                    for granted in (granter.received(size), granter.consumed(size)):
                        if granted is not None:
                            reply = pb.PutReply(granted=granted, blocks_held=totals.blocks)
                            writer.write(reply.SerializeToString())
        committed = pb.Committed(output=command.output, worker="bench", totals=messages.totals_message(totals))
        writer.write(pb.PutReply(blocks_held=totals.blocks, committed=committed).SerializeToString())

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.GeneratorStream:
        job = self._jobs[messages.parse(pb.GetTicket, ticket.ticket).shuffle.shuffle]
        return fl.GeneratorStream(SCHEMA, _served(job))

    def do_action(self, context: fl.ServerCallContext, action: fl.Action) -> Iterator[bytes]:
        number = next(self._numbers)
        self._jobs[number] = Job.load(action.body.to_pybytes())
        yield str(number).encode()


def _served(job: Job) -> Iterator[tuple[pa.RecordBatch, bytes]]:
    prepared = ring(job)
    ids = np.zeros(job.message // job.block, np.int64)
    totals = Totals()
    for i in range(job.count):
        message = prepared[i % len(prepared)]
        totals = add_rows(totals, message.rows)
        yield get_batch(SCHEMA, ids, ids, message.rows, message.payload), b""
    end = pb.GetControl(end=messages.totals_message(totals)).SerializeToString()
    yield get_batch(SCHEMA, ids[:0], ids[:0], prepared[0].rows[:0], b""), end
