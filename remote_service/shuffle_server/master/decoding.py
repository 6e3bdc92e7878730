"""Decoding of control requests at the service's own edge, so that garbage is refused by a typed error as well.

gRPC would decode before any handler of ours runs, answer what it cannot decode with a bare INTERNAL, and print a stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from shuffle_api.errors import InvalidArgument
from shuffle_server.master.refusal import refuse
from shuffle_server.master.wrapping import behavior_of, wrapped


class DecodingInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Hands raw bytes to the handlers behind it, decoded, and refuses with InvalidArgument what is no request.

    The first interceptor of a server: those behind it see messages.
    """

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler: Any = continuation(handler_call_details)
        if handler is None or handler.request_deserializer is None:
            return handler  # type: ignore[no-any-return]

        def decode(data: bytes, context: grpc.ServicerContext) -> Any:
            try:
                return handler.request_deserializer(data)
            except DecodeError:
                method = str(handler_call_details.method).rpartition("/")[2]
                refuse(
                    context,
                    InvalidArgument(
                        f"{len(data)} bytes that are no request of {method}",
                        remedy="speak flight_shuffle.v1 (docs/protocol.md)",
                    ),
                )

        inner = behavior_of(handler)
        if inner is not None:
            return wrapped(handler, lambda data, context: inner(decode(data, context), context), decodes=True)

        def serve_stream(requests: Iterator[bytes], context: grpc.ServicerContext) -> Any:
            return handler.stream_stream((decode(data, context) for data in requests), context)

        return grpc.stream_stream_rpc_method_handler(serve_stream, None, handler.response_serializer)
