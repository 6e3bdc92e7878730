"""The control endpoint's calls, watched from outside of it: how long, refused with which code, and for whom."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import grpc

from shuffle_server.observe.instruments import Instruments
from shuffle_server.observe.log_context import add_log_fields, fields_of_error, log_context
from shuffle_server.proto import registry_pb2 as registry_pb
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)


class CallObserver(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """The outermost interceptor: it sees what the others refuse as well. Methods are unary, as all of the service's."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler: Any = continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler  # type: ignore[no-any-return]
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

        return grpc.unary_unary_rpc_method_handler(
            serve, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
        )

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
        if handler is None or handler.unary_unary is None:
            return handler  # type: ignore[no-any-return]

        def serve(request: Any, context: grpc.ServicerContext) -> Any:
            app, shuffle = getattr(request, "app", ""), getattr(request, "shuffle", None)
            if shuffle is not None:
                add_log_fields(app=shuffle.app, shuffle=shuffle.shuffle)
            elif app:
                add_log_fields(app=app)
            return handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(
            serve, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
        )


METHODS = frozenset(
    method.name
    for file in (pb.DESCRIPTOR, registry_pb.DESCRIPTOR)
    for service in file.services_by_name.values()
    for method in service.methods
)
