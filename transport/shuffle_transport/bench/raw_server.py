"""The peer's end of raw Flight: what pyarrow offers, nothing added: no credit, no checks, batches dropped unread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from shuffle_transport.bench.arrivals import Arrivals
from shuffle_transport.bench.counters import Counters
from shuffle_transport.bench.data import batches
from shuffle_transport.bench.job import Job
from shuffle_transport.blocks import PUT_SCHEMA

ANY = "grpc+tcp://127.0.0.1:0"
Action = Callable[[], bytes]


class RawServer(fl.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves jobs: in a descriptor's path for DoPut and DoExchange, in the ticket for DoGet.

    :param actions: what `do_action` answers, by name; how the client asks about the peer itself.
    """

    def __init__(self, counters: Counters, actions: dict[str, Action]) -> None:
        super().__init__(ANY)
        self._counters, self._actions = counters, actions

    def do_put(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.FlightMetadataWriter,
    ) -> None:
        job = Job.load(descriptor.path[0])
        for chunk in chunks(reader):
            self._counters.took(job, chunk.data.num_rows * job.block)
        writer.write(b".")  # the client returns when everything is here

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.RecordBatchStream:
        job = Job.load(ticket.ticket)
        prepared = batches(job)
        repeated = [prepared[i % len(prepared)] for i in range(job.count)]
        return fl.RecordBatchStream(pa.Table.from_batches(repeated, PUT_SCHEMA))  # Arrow's C++ does it all

    def do_exchange(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        job = Job.load(descriptor.path[0])
        writer.begin(PUT_SCHEMA)
        if job.work == "both":
            _both(job, reader, writer)
        elif job.work == "echo":
            for chunk in chunks(reader):
                writer.write_batch(chunk.data)
        elif job.work == "arrivals":
            arrivals = Arrivals(job.block)
            for chunk in chunks(reader):
                arrivals.add(chunk.data.column(4).buffers()[2])
            writer.write_metadata(arrivals.report())

    def do_action(self, context: fl.ServerCallContext, action: fl.Action) -> Iterator[bytes]:
        yield self._actions[action.type]()


def chunks(reader: Any) -> Iterator[Any]:
    """Messages until the other end has half-closed."""
    while True:
        try:
            yield reader.read_chunk()
        except StopIteration:
            return


def _both(job: Job, reader: Any, writer: Any) -> None:
    prepared = batches(job)

    def send() -> None:
        for i in range(job.count):
            writer.write_batch(prepared[i % len(prepared)])

    sender = threading.Thread(target=send, name="raw-send")
    sender.start()
    for _ in chunks(reader):
        pass
    sender.join()  # a handler must not return while a thread still uses its stream
