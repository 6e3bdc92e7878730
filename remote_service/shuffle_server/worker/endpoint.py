"""The Arrow Flight endpoint: Flight's verbs on one side, the worker's rules on the other.

Errors of a push travel as its last reply, errors of a pull that concern one map output inside the stream; what is
wrong with the request itself fails the call, with the Error message as Flight's extra info.
"""

from __future__ import annotations

import contextvars
import functools
import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.flight as fl

from shuffle_api.address import Address
from shuffle_api.errors import ErrorCode, InvalidArgument, PermissionDenied, ShuffleError
from shuffle_api.ids import ShuffleId, name_of
from shuffle_api.values import ShuffleSpec
from shuffle_server.bounds import Bound
from shuffle_server.connection_guard import ConnectionGuard
from shuffle_server.observe.calls import StrangersObserver
from shuffle_server.observe.instruments import Instruments
from shuffle_server.observe.log_context import add_log_fields, fields_of_error, log_context
from shuffle_server.security import ServerSecurity
from shuffle_server.worker import inline_fetch
from shuffle_server.worker.actions import act
from shuffle_server.worker.incoming import Incoming, drain, put_messages
from shuffle_server.worker.local_file_handler import PREFIX, LocalFileHandler
from shuffle_server.worker.output_maintenance import SCRUB, scrub
from shuffle_server.worker.pull_room import PullRoom
from shuffle_server.worker.push_handler import INLINE_ACTION, PushHandler, PutOptions, note_push
from shuffle_server.worker.relay.channel_relay import ChannelRelay
from shuffle_server.worker.relay.relay import RelayStreams
from shuffle_server.worker.worker import Worker
from shuffle_transport import messages
from shuffle_transport.blocks import GET_SCHEMA, PUT_SCHEMA
from shuffle_transport.channels.disconnect import disconnect_from_peer
from shuffle_transport.channels.wire import EXCHANGE_SCHEMA
from shuffle_transport.flight_auth import MIDDLEWARE, TokenMiddlewareFactory, principal_of
from shuffle_transport.freed_memory import keep_freed_memory
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Principal

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_FLIGHTS = 1000  # in one list; criteria make it shorter
MAX_ENDPOINTS = 1 << 14  # in one answer about flights: a shuffle may have two thousand million partitions

_FLIGHT_ERRORS: dict[ErrorCode, type[fl.FlightError]] = {
    ErrorCode.UNAUTHENTICATED: fl.FlightUnauthenticatedError,
    ErrorCode.PERMISSION_DENIED: fl.FlightUnauthorizedError,
    ErrorCode.SHUTTING_DOWN: fl.FlightUnavailableError,
    ErrorCode.INTERNAL: fl.FlightInternalError,
}


@dataclass(frozen=True, slots=True)
class DataServices:
    """What answers the calls of an endpoint, beside its worker."""

    put: PutOptions
    local_files: LocalFileHandler
    relay: RelayStreams
    channels: ChannelRelay


class FlightEndpoint(fl.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves one worker. `serve()` blocks; `shutdown()` waits for the calls that are under way."""

    def __init__(
        self,
        listen: Address,
        worker: Worker,
        services: DataServices,
        security: ServerSecurity,
        guard: ConnectionGuard,
        calls: Bound[str],
    ) -> None:
        """:param calls: how many an application may have under way."""
        keep_freed_memory()
        self._guard = guard
        tls, self._instruments = security.tls, worker.instruments
        # Not a method of this object: Arrow would keep both alive.
        refused = functools.partial(_note_refused_call, StrangersObserver(worker.instruments), self._guard)
        enter = functools.partial(_enter, calls)
        auth_middleware = security.tokens and TokenMiddlewareFactory(security.tokens.authenticate, refused, enter)
        super().__init__(
            f"grpc+{'tcp' if tls is None else 'tls'}://{listen}",
            tls_certificates=None if tls is None else [(tls.cert, tls.key)],
            verify_client=tls is not None and bool(tls.client_ca),
            root_certificates=None if tls is None else tls.client_ca or None,
            middleware={MIDDLEWARE: auth_middleware} if auth_middleware else None,
        )
        self.worker, self._services = worker, services
        self._pushes = PushHandler(worker, services.put, services.local_files)

    def do_put(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.FlightMetadataWriter,
    ) -> None:
        def reply(message: pb.PutReply) -> None:
            writer.write(message.SerializeToString())

        peer = context.peer()
        incoming = Incoming(reader, PUT_SCHEMA, self._guard.called(peer), self._instruments.body_refused)
        with log_context(peer=peer), self._instruments.push() as push:
            try:
                if descriptor.descriptor_type != fl.DescriptorType.CMD:
                    raise InvalidArgument(
                        "a push whose descriptor is a path", remedy="send a PutCommand (docs/protocol.md)"
                    )
                command = messages.parse(pb.PutCommand, descriptor.command)
                if command.copy:
                    principal_of(context).check_member("copies of map outputs")
                else:
                    principal_of(context).check(command.shuffle.app)
                note_push(command)
                pushed = put_messages(self.worker, incoming)
                if command.relay:
                    self._pushes.stream(
                        command, self._services.relay.sink(command, context.is_cancelled), pushed, reply
                    )
                else:
                    self._pushes.attempt(command, pushed, reply)
                push.completed()
            except ShuffleError as error:
                push.refused()
                if not incoming.readable:  # a reply reaches a sender only while its messages are read
                    raise self._failed("push", error) from error
                self._refused("push", error)
                reply(pb.PutReply(error=messages.error_message(error)))
                drain(incoming, self._services.put.window)  # the sender may be writing: let it reach the reply

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.GeneratorStream:
        started, peer = time.monotonic(), context.peer()
        self._guard.called(peer).took(len(ticket.ticket))
        with log_context(peer=peer):
            try:
                wanted = _wanted(ticket.ticket, principal_of(context))
                if wanted.HasField("relay"):
                    refused = functools.partial(self._refused, "relayed pull")
                    schema, items = self._services.relay.pull(wanted, context.is_cancelled, refused)
                else:
                    schema, pulled = self.worker.get(wanted, self._room(wanted, peer))
                    items = self._pulled(pulled)
            except ShuffleError as error:
                raise self._failed("pull", error) from error
            return fl.GeneratorStream(schema, self._instruments.pull(items, started))

    def do_exchange(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        """A channel between two other processes."""
        peer = context.peer()
        incoming = Incoming(reader, EXCHANGE_SCHEMA, self._guard.called(peer), self._instruments.body_refused)
        with log_context(peer=peer):
            self._services.channels.exchange(context, descriptor, incoming, writer)

    def do_action(self, context: fl.ServerCallContext, action: fl.Action) -> Iterator[fl.Result]:
        """Small outputs and pulls, files, scrub (docs/protocol.md), and what the cluster asks of a worker."""
        kind, body, peer = action.type, action.body.to_pybytes(), context.peer()
        self._guard.called(peer).took(len(body))
        with log_context(peer=peer):
            try:
                if kind == SCRUB:
                    request = messages.parse(pb.ScrubRequest, body)
                    progress = scrub(self.worker, request, principal_of(context))
                    return self._results(kind, (message.SerializeToString() for message in progress))
                if kind == INLINE_ACTION:
                    results = [self._pushes.inline(body, principal_of(context)).SerializeToString()]
                elif kind == inline_fetch.ACTION:
                    return self._fetch_inline(body, principal_of(context), peer)
                elif kind.startswith(PREFIX):
                    return self._results(kind, self._services.local_files.act(kind, body, principal_of(context)))
                else:
                    results = [act(self.worker, principal_of(context), kind, body)]
            except ShuffleError as error:
                raise self._failed(f"action {kind[:32]}", error) from error
        return iter([fl.Result(pa.py_buffer(result)) for result in results])

    def _fetch_inline(self, body: bytes, principal: Principal, peer: str) -> Iterator[fl.Result]:
        """Its memory stays reserved until gRPC has the result, and asks for the next one."""
        try:
            wanted = _wanted(body, principal)
            if wanted.HasField("relay"):
                raise InvalidArgument("a relayed pull in one answer", remedy="use DoGet for it")
            with self._room(wanted, peer) as room:
                with log_context(peer=peer), self._instruments.whole_pull():
                    result = self.worker.get_whole(wanted, room)
                yield fl.Result(pa.py_buffer(result))
        except ShuffleError as error:
            raise self._failed("action get", error) from error

    def _room(self, wanted: pb.GetTicket, peer: str) -> PullRoom:
        app, give_up = name_of(wanted.shuffle.app), functools.partial(disconnect_from_peer, peer)
        return PullRoom(self.worker.pool, self._services.put.overload_timeout, app, give_up)

    def _pulled(self, items: Generator[T, None, None]) -> Generator[T, None, None]:
        try:
            yield from items
        except ShuffleError as error:
            raise self._failed("pull", error) from error

    def _results(self, kind: str, results: Iterable[bytes]) -> Iterator[fl.Result]:
        """Made as gRPC takes them, in threads of its own: the log's context is that of this call."""
        return self._made(kind, iter(results), contextvars.copy_context())

    def _made(self, kind: str, results: Iterator[bytes], context: contextvars.Context) -> Iterator[fl.Result]:
        try:
            while (result := context.run(next, results, None)) is not None:
                yield fl.Result(pa.py_buffer(result))
        except ShuffleError as error:
            raise self._failed(f"action {kind[:32]}", error) from error

    def list_flights(self, context: fl.ServerCallContext, criteria: bytes) -> Iterator[fl.FlightInfo]:
        """The shuffles of the runs whose name begins with `criteria`, as far as the caller may see them: up to
        MAX_FLIGHTS of them."""
        self._guard.called(context.peer()).took(len(criteria))
        own, begin = principal_of(context).app, criteria.decode("utf-8", "replace")
        if own is not None and not own.startswith(name_of(begin)):
            raise self._failed(
                "list of flights",
                PermissionDenied(
                    f"a list of applications {begin!r} with the token of application {own!r}",
                    remedy="ask for the shuffles of this application",
                ),
            )
        ids = [id for id in self.worker.shuffles() if id.app.startswith(begin)]
        seen = [id for id in ids if own in (None, name_of(id.app))]
        return self._infos(seen[:MAX_FLIGHTS])

    def get_flight_info(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> fl.FlightInfo:
        try:
            return self._info(self._described(context, descriptor))
        except ShuffleError as error:
            raise self._failed("flight info", error) from error

    def get_schema(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> fl.SchemaResult:
        try:
            self._described(context, descriptor)
        except ShuffleError as error:
            raise self._failed("schema", error) from None  # pyarrow sends the stack of this one: keep it short
        return fl.SchemaResult(GET_SCHEMA)

    def _described(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> ShuffleSpec:
        self._guard.called(context.peer())
        shuffle = _shuffle_of(descriptor)
        principal_of(context).check(shuffle.app)
        return self.worker.spec(shuffle)

    def _infos(self, ids: Sequence[ShuffleId]) -> Iterator[fl.FlightInfo]:
        for id in ids:
            try:
                yield self._info(self.worker.spec(id), MAX_ENDPOINTS // len(ids))
            except ShuffleError as error:
                log.debug("not listed: %s", error)  # it was unregistered meanwhile

    def _info(self, spec: ShuffleSpec, most: int = MAX_ENDPOINTS) -> fl.FlightInfo:
        """A shuffle as a flight: an endpoint with a ticket per partition, or per run of them if they are too many."""
        outputs = self.worker.outputs(spec.id)
        key = messages.key_of(spec.id)
        step = -(-spec.partitions // max(1, most))
        tickets = (
            pb.GetTicket(shuffle=key, first_partition=p, end_partition=min(p + step, spec.partitions))
            for p in range(0, spec.partitions, step)
        )
        endpoints = [fl.FlightEndpoint(ticket.SerializeToString(), []) for ticket in tickets]
        descriptor = fl.FlightDescriptor.for_path(spec.id.app, str(spec.id.shuffle))
        records = sum(o.totals.records for o in outputs)
        return fl.FlightInfo(GET_SCHEMA, descriptor, endpoints, records, sum(o.totals.bytes for o in outputs))

    def _refused(self, what: str, error: ShuffleError) -> None:
        error.worker = self.worker.info.id
        _note_refusal(self._instruments, what, error)

    def _failed(self, what: str, error: ShuffleError) -> fl.FlightError:
        self._refused(what, error)
        kind = _FLIGHT_ERRORS.get(error.code, fl.FlightServerError)
        return kind(messages.status_text(error), extra_info=messages.error_message(error).SerializeToString())


def calls_bound(most: int) -> Bound[str]:
    """How many calls each application may have under way at the data endpoint, each of which has a thread."""
    return Bound("calls are under way at this worker", most, remedy="make fewer at once, or raise --app-max-calls")


def _enter(calls: Bound[str], principal: Principal) -> Callable[[], object]:
    """Count a call; what is to be called at its end. Raises Overloaded."""
    if not principal.app:
        return _nothing
    calls.enter(principal.app, f"application {principal.app}")
    return functools.partial(calls.leave, principal.app)


def _nothing() -> None: ...


def _note_refusal(instruments: Instruments, what: str, error: ShuffleError) -> None:
    instruments.refused("data", error)
    with log_context(**fields_of_error(error)):
        log.warning("%s refused: %s", what, messages.status_text(error))


def _note_refused_call(observer: StrangersObserver, guard: ConnectionGuard, error: ShuffleError) -> None:
    guard.refused()
    observer.refused(error)


def _wanted(ticket: bytes, principal: Principal) -> pb.GetTicket:
    """What a pull asks for, noted for the log. Raises InvalidArgument, PermissionDenied."""
    wanted = messages.parse(pb.GetTicket, ticket)
    principal.check(wanted.shuffle.app)
    add_log_fields(app=wanted.shuffle.app, shuffle=wanted.shuffle.shuffle)
    return wanted


def _shuffle_of(descriptor: fl.FlightDescriptor) -> ShuffleId:
    path = [part.decode("utf-8", "replace") for part in descriptor.path or []]
    if len(path) != 2 or not path[1].isdigit():
        raise InvalidArgument(
            f"flight path {'/'.join(path)!r}", remedy="use the path [app, shuffle number], as ListFlights shows it"
        )
    return ShuffleId(path[0], int(path[1]))
