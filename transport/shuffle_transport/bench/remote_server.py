"""The peer's end of push and pull: the wire of docs/protocol.md with a worker that keeps nothing.

What is left of a worker without its store: checks, credit from the pool, totals and digest, the end message.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

from shuffle_api.values import Totals
from shuffle_transport import messages
from shuffle_transport.bench.data import ring
from shuffle_transport.bench.job import Job
from shuffle_transport.bench.raw_server import ANY, chunks
from shuffle_transport.blocks import CODEC_KEY, GET_SCHEMA, PUT_SCHEMA, add_rows, get_batch, parse_batch
from shuffle_transport.granter import Granter
from shuffle_transport.pool import BufferPool
from shuffle_transport.proto import flight_shuffle_pb2 as pb

PREPARE = "prepare"
TIMEOUT_S = 60.0
SCHEMA = GET_SCHEMA.with_metadata({CODEC_KEY: b"none"})


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
