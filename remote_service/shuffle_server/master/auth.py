"""The control endpoint's doorman: nothing is served or even parsed without a token (docs/protocol.md, Who may)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from shuffle_api.errors import PermissionDenied, ShuffleError, Unauthenticated
from shuffle_server.master.refusal import refuse
from shuffle_server.master.wrapping import Serve, behavior_of, wrapped
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
    "Watch": lambda request: request.shuffle.app,
}
FOR_ANY_TOKEN = "Hello"
FOR_OWN_APP = "Status"


class TokenInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Lets a call through when its token is right and its request is about an application the token is for."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler: Any = continuation(handler_call_details)
        try:
            principal = self._principal(handler_call_details)
        except Unauthenticated as error:
            return _refusing(error, handler)
        if handler is None:
            return None
        method = str(handler_call_details.method).rpartition("/")[2]
        inner = behavior_of(handler)
        if inner is None:
            # Nothing that a stream asks for is looked at here, so it needs the token that may ask for anything.
            return handler if principal.app is None else _refusing(_for_the_cluster(method), handler)
        return wrapped(handler, _checked(inner, method, principal))

    def _principal(self, details: grpc.HandlerCallDetails) -> Principal:
        found: dict[str, list[str]] = {TOKEN_HEADER: [], APP_HEADER: []}
        for key, value in details.invocation_metadata or ():
            if key in found:
                found[key].append(value if isinstance(value, str) else "")
        return authenticate(self._secret, found[TOKEN_HEADER], found[APP_HEADER])


def _checked(inner: Serve, method: str, principal: Principal) -> Serve:
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
        raise _for_the_cluster(method)


def _for_the_cluster(method: str) -> PermissionDenied:
    return PermissionDenied(f"{method} is for the cluster's token only")


def _refusing(error: ShuffleError, handler: Any) -> grpc.RpcMethodHandler[Any, Any]:
    """In place of `handler`, which may be a stream's, and None where there is no such method."""

    def serve(request: Any, context: grpc.ServicerContext) -> Any:
        refuse(context, error)

    if handler is not None and handler.stream_stream is not None:
        return grpc.stream_stream_rpc_method_handler(serve)
    return grpc.unary_unary_rpc_method_handler(serve)
