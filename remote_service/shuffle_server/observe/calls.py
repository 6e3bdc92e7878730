"""The control endpoint's calls, watched from outside of it: how long, refused with which code, and for whom."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from shuffle_server.master.wrapping import behavior_of, wrapped
from shuffle_server.observe.instruments import Instruments
from shuffle_server.observe.log_context import add_log_fields, fields_of_error, log_context
from shuffle_server.proto import registry_pb2 as registry_pb
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)


class CallObserver(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """The outermost of those that look at calls: it sees what the others refuse as well. To it each request of a stream
    is a call."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler: Any = continuation(handler_call_details)
        if handler is None:
            return None
        name = str(handler_call_details.method).rpartition("/")[2]
        method = name if name in METHODS else "unknown"

        def serve(request: Any, context: grpc.ServicerContext) -> Any:
            started = time.monotonic()
            with log_context(peer=context.peer(), method=method):
                try:
                    return handler.unary_unary(request, context)
                finally:
                    self._instruments.control_call(method, time.monotonic() - started)
                    self._note_refusal(context)

        def serve_stream(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            # It lasts as long as the caller likes, which is no measure of anything.
            with log_context(peer=context.peer(), method=method):
                try:
                    yield from handler.unary_stream(request, context)
                finally:
                    self._note_refusal(context)

        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(
                self._watching(handler.stream_stream, method), handler.request_deserializer, handler.response_serializer
            )
        return wrapped(handler, serve_stream if handler.unary_stream else serve)

    def _watching(self, stream: Callable[..., Iterator[Any]], method: str) -> Callable[..., Iterator[Any]]:
        def serve(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            asked = 0.0

            def noted() -> Iterator[Any]:
                nonlocal asked
                for request in requests:
                    asked = time.monotonic()
                    yield request

            with log_context(peer=context.peer(), method=method):
                try:
                    for reply in stream(noted(), context):
                        self._instruments.control_call(method, time.monotonic() - asked)
                        yield reply
                finally:
                    self._note_refusal(context)

        return serve

    def _note_refusal(self, context: Any) -> None:
        for key, value in context.trailing_metadata() or ():
            if key == messages.ERROR_METADATA:
                error = messages.typed_error(messages.parse(pb.Error, value))
                self._instruments.refused("control", error)
                with log_context(**fields_of_error(error)):
                    log.warning("call refused: %s", messages.status_text(error))


class RequestFields(grpc.ServerInterceptor):  # type: ignore[type-arg]
    """The innermost interceptor: it has the log say which application and shuffle a request is about."""

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler: Any = continuation(handler_call_details)
        inner = None if handler is None else behavior_of(handler)
        if inner is None:
            return handler  # type: ignore[no-any-return]

        def serve(request: Any, context: grpc.ServicerContext) -> Any:
            app, shuffle = getattr(request, "app", ""), getattr(request, "shuffle", None)
            if shuffle is not None:
                add_log_fields(app=shuffle.app, shuffle=shuffle.shuffle)
            elif app:
                add_log_fields(app=app)
            return inner(request, context)

        return wrapped(handler, serve)


METHODS = frozenset(
    method.name
    for file in (pb.DESCRIPTOR, registry_pb.DESCRIPTOR)
    for service in file.services_by_name.values()
    for method in service.methods
)
