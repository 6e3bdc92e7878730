"""What interceptors put around a handler that takes one request, whether it gives one reply or several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

Serve = Callable[[Any, grpc.ServicerContext], Any]
"""Takes a request, gives the reply, or an iterator of the replies."""


def behavior_of(handler: Any) -> Serve | None:
    """What a handler does with its one request; None for one that takes a stream of them."""
    found: Serve | None = handler.unary_unary or handler.unary_stream
    return found


def wrapped(handler: Any, serve: Serve, *, decodes: bool = False) -> grpc.RpcMethodHandler[Any, Any]:
    """A handler that does `serve` instead.

    :param decodes: `serve` takes the request as it came.
    """
    make = grpc.unary_stream_rpc_method_handler if handler.unary_stream else grpc.unary_unary_rpc_method_handler
    return make(
        serve,
        request_deserializer=None if decodes else handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )
