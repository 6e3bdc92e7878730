"""The control endpoint's calls, watched from outside of it: how long, and refused with which code."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import grpc

from shuffle_server.observe.instruments import Instruments
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb


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
                error = pb.Error.FromString(value)
                self._instruments.refused_by_code("control", pb.ErrorCode.Name(error.code))


METHODS = frozenset(method.name for service in pb.DESCRIPTOR.services_by_name.values() for method in service.methods)
