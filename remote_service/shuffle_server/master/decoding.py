"""Decoding of control requests at the service's own edge, so that garbage is refused by a typed error as well.

gRPC would decode before any handler of ours runs, answer what it cannot decode with a bare INTERNAL, and print a stack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from shuffle_api.errors import InvalidArgument
from shuffle_server.master.refusal import refuse


class DecodingInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Hands raw bytes to the handlers behind it, decoded, and refuses with InvalidArgument what is no request.

    The first interceptor of a server: those behind it see messages. Methods are unary, as all of the service's are.
    """

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler: Any = continuation(handler_call_details)
        if handler is None or handler.request_deserializer is None:
            return handler  # type: ignore[no-any-return]

        def serve(data: bytes, context: grpc.ServicerContext) -> Any:
            try:
                request = handler.request_deserializer(data)
            except DecodeError:
                method = str(handler_call_details.method).rpartition("/")[2]
                refuse(
                    context,
                    InvalidArgument(
                        f"{len(data)} bytes that are no request of {method}",
                        remedy="speak flight_shuffle.v1 (docs/protocol.md)",
                    ),
                )
            return handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(serve, response_serializer=handler.response_serializer)
