"""A master that may have been replaced answers nothing, whatever the call: not even that it does not know something."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc

from shuffle_api.errors import ShuffleError
from shuffle_server.master.refusal import refuse
from shuffle_server.master.wrapping import behavior_of, wrapped


class LeaderOnly(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Refuses each request that arrives, also on a stream, when `sure` raises a ShuffleError.

    It is asked before the request is looked at. So an answer shows the state of a master that led after the request was
    sent, however late the answer leaves; a change is refused by the registry's storage if another master leads by then.
    """

    def __init__(self, sure: Callable[[], None]) -> None:
        self._sure = sure

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler: Any = continuation(handler_call_details)
        if handler is None:
            return None
        serve = behavior_of(handler)
        if serve is not None:
            answer = serve
            return wrapped(handler, lambda request, context: self._checked(context) and answer(request, context))
        stream = handler.stream_stream
        return grpc.stream_stream_rpc_method_handler(
            lambda requests, context: stream(self._each(requests, context), context),
            handler.request_deserializer,
            handler.response_serializer,
        )

    def _each(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        for request in requests:
            self._checked(context)
            yield request

    def _checked(self, context: grpc.ServicerContext) -> bool:
        try:
            self._sure()
        except ShuffleError as error:
            refuse(context, error)
        return True
