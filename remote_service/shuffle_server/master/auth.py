"""The control endpoint's doorman: nothing is served or even parsed without a token (docs/protocol.md, Who may)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from shuffle_api.errors import PermissionDenied, ShuffleError, Unauthenticated
from shuffle_server.master.refusal import refuse
from shuffle_transport.security import APP_HEADER, TOKEN_HEADER, Principal, authenticate

# Which application a request is about. A method that is not in here is served to the cluster's token only.
APP_OF: dict[str, Callable[[Any], str]] = {
    "RegisterApp": lambda request: request.app,
    "Heartbeat": lambda request: request.app,
    "UnregisterApp": lambda request: request.app,
    "RegisterShuffle": lambda request: request.shuffle.app,
    "UnregisterShuffle": lambda request: request.shuffle.app,
    "Place": lambda request: request.shuffle.app,
    "Locate": lambda request: request.shuffle.app,
    "ReportLost": lambda request: request.shuffle.app,
}
FOR_ANY_TOKEN = "Hello"
FOR_OWN_APP = "Status"

Handler = Callable[[Any, grpc.ServicerContext], Any]


class TokenInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Lets a call through when its token is right and its request is about an application the token is for."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        try:
            principal = self._principal(handler_call_details)
        except Unauthenticated as error:
            return _refusing(error)
        handler: Any = continuation(handler_call_details)
        if handler is None:
            return None
        method = str(handler_call_details.method).rpartition("/")[2]
        if handler.unary_unary is None:
            return _refusing(PermissionDenied(f"{method} is a stream, which no token allows"))
        return grpc.unary_unary_rpc_method_handler(
            _checked(handler.unary_unary, method, principal),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _principal(self, details: grpc.HandlerCallDetails) -> Principal:
        found: dict[str, list[str]] = {TOKEN_HEADER: [], APP_HEADER: []}
        for key, value in details.invocation_metadata or ():
            if key in found:
                found[key].append(value if isinstance(value, str) else "")
        return authenticate(self._secret, found[TOKEN_HEADER], found[APP_HEADER])


def _checked(inner: Handler, method: str, principal: Principal) -> Handler:
    def serve(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            check(method, request, principal)
        except ShuffleError as error:
            refuse(context, error)
        return inner(request, context)

    return serve


def check(method: str, request: Any, principal: Principal) -> None:
    """Narrow a question about all applications to the principal's own.

    :raises PermissionDenied: the request is about an application that this principal may not act for.
    """
    if principal.app is None or method == FOR_ANY_TOKEN:
        return
    if method == FOR_OWN_APP:
        request.app = request.app or principal.app
        principal.check(request.app)
    elif method in APP_OF:
        principal.check(APP_OF[method](request))
    else:
        raise PermissionDenied(f"{method} is for the cluster's token only")


def _refusing(error: ShuffleError) -> grpc.RpcMethodHandler[Any, Any]:
    def serve(request: Any, context: grpc.ServicerContext) -> Any:
        refuse(context, error)

    return grpc.unary_unary_rpc_method_handler(serve)
