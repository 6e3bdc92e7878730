"""The Arrow Flight endpoint: Flight's verbs on one side, the worker's rules on the other.

Errors of a push travel as its last reply, errors of a pull that concern one map output inside the stream; what is
wrong with the request itself fails the call, with the Error message as Flight's extra info.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow.flight as fl

from shuffle_api.errors import ErrorCode, InvalidArgument, ShuffleError
from shuffle_api.ids import ShuffleId
from shuffle_api.values import ShuffleSpec
from shuffle_server.worker.ingest import Ingest, PutOptions
from shuffle_server.worker.worker import Worker
from shuffle_transport import messages
from shuffle_transport.blocks import GET_SCHEMA
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)

_FLIGHT_ERRORS: dict[ErrorCode, type[fl.FlightError]] = {
    ErrorCode.UNAUTHENTICATED: fl.FlightUnauthenticatedError,
    ErrorCode.PERMISSION_DENIED: fl.FlightUnauthorizedError,
    ErrorCode.SHUTTING_DOWN: fl.FlightUnavailableError,
    ErrorCode.INTERNAL: fl.FlightInternalError,
}


class FlightEndpoint(fl.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves one worker. `serve()` blocks; `shutdown()` waits for the calls that are under way."""

    def __init__(self, location: str, worker: Worker, options: PutOptions) -> None:
        super().__init__(location)
        self.worker, self._options = worker, options

    def do_put(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.FlightMetadataWriter,
    ) -> None:
        def reply(message: pb.PutReply) -> None:
            writer.write(message.SerializeToString())

        try:
            if descriptor.descriptor_type != fl.DescriptorType.CMD:
                raise InvalidArgument(
                    "a push whose descriptor is a path", remedy="send a PutCommand (docs/protocol.md)"
                )
            command = messages.parse(pb.PutCommand, descriptor.command)
            Ingest(self.worker, command, self._options, reply).run(_chunks(reader))
        except ShuffleError as error:
            error.worker = self.worker.info.id
            log.warning("push refused: %s", error)
            reply(pb.PutReply(error=messages.error_message(error)))
            for _ in _chunks(reader):  # the sender may be in the middle of writing: let it reach the reply
                pass

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.GeneratorStream:
        try:
            schema, items = self.worker.get(messages.parse(pb.GetTicket, ticket.ticket))
        except ShuffleError as error:
            raise self._failed(error) from error
        return fl.GeneratorStream(schema, items)

    def list_flights(self, context: fl.ServerCallContext, criteria: bytes) -> Iterator[fl.FlightInfo]:
        for spec in self.worker.shuffles():
            if spec.id.app.startswith(criteria.decode("utf-8", "replace")):
                yield self._info(spec)

    def get_flight_info(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> fl.FlightInfo:
        try:
            return self._info(self.worker.spec(_shuffle_of(descriptor)))
        except ShuffleError as error:
            raise self._failed(error) from error

    def get_schema(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> fl.SchemaResult:
        return fl.SchemaResult(GET_SCHEMA)

    def _info(self, spec: ShuffleSpec) -> fl.FlightInfo:
        """A shuffle as a flight: an endpoint with a ticket per partition."""
        outputs = self.worker.outputs(spec.id)
        key = messages.key_of(spec.id)
        endpoints = [
            fl.FlightEndpoint(pb.GetTicket(shuffle=key, first_partition=p, end_partition=p + 1).SerializeToString(), [])
            for p in range(spec.partitions)
        ]
        descriptor = fl.FlightDescriptor.for_path(spec.id.app, str(spec.id.shuffle))
        records = sum(o.totals.records for o in outputs)
        return fl.FlightInfo(GET_SCHEMA, descriptor, endpoints, records, sum(o.totals.bytes for o in outputs))

    def _failed(self, error: ShuffleError) -> fl.FlightError:
        error.worker = self.worker.info.id
        kind = _FLIGHT_ERRORS.get(error.code, fl.FlightServerError)
        return kind(str(error), extra_info=messages.error_message(error).SerializeToString())


def _chunks(reader: fl.MetadataRecordBatchReader) -> Iterator[Any]:
    """The messages of a push until the sender half-closes. A stream that breaks ends with a Flight or Arrow error."""
    while True:
        try:
            yield reader.read_chunk()
        except StopIteration:
            return


def _shuffle_of(descriptor: fl.FlightDescriptor) -> ShuffleId:
    path = [part.decode("utf-8", "replace") for part in descriptor.path or []]
    if len(path) != 2 or not path[1].isdigit():
        raise InvalidArgument(
            f"flight path {'/'.join(path)!r}", remedy="use the path [app, shuffle number], as ListFlights shows it"
        )
    return ShuffleId(path[0], int(path[1]))


def location(host: str, port: int) -> str:
    return f"grpc+tcp://{host}:{port}"
