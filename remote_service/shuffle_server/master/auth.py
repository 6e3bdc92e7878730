"""The control endpoint's doorman: nothing is served or even parsed without a token (docs/protocol.md, Who may)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc

from shuffle_api.errors import PermissionDenied, ShuffleError, Unauthenticated
from shuffle_server.master.refusal import refuse
from shuffle_server.master.wrapping import Serve, behavior_of, wrapped
from shuffle_server.proto import registry_pb2 as registry_pb
from shuffle_transport.security import APP_HEADER, TOKEN_HEADER, Authenticate, Principal

# Which application a request is about. A method that is in none of these tables is served to the cluster's token only.
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
# In the name of which workers a request is made. A worker's token is good for these, and for looking outputs up.
WORKERS_OF: dict[str, Callable[[Any], Iterable[str]]] = {
    "Join": lambda request: (request.worker.id,),
    "Beat": lambda request: (request.identity.worker, request.status.worker or request.identity.worker),
    "Commits": lambda request: _of_commits(request),
    "Held": lambda request: (request.worker,),
    "Lose": lambda request: (request.identity.worker,),
    "Release": lambda request: (request.identity.worker,),
    "Drain": lambda request: (request.worker,),
    "Leave": lambda request: (request.identity.worker,),
}
FOR_ANY_WORKER = frozenset(("Place", "Locate"))
FOR_ANY_TOKEN = "Hello"
FOR_OWN_APP = "Status"


class TokenInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Lets a call through when its token is right and its request is about an application, or in the name of a worker,
    that the token is for."""

    def __init__(self, authenticate: Authenticate) -> None:
        self._authenticate = authenticate

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
            if principal.app is None:
                return handler  # type: ignore[no-any-return]
            if not principal.worker or method not in WORKERS_OF:
                return _refusing(_for_the_cluster(method), handler)
            return _checked_stream(handler, method, principal)
        return wrapped(handler, _checked(inner, method, principal))

    def _principal(self, details: grpc.HandlerCallDetails) -> Principal:
        found: dict[str, list[str]] = {TOKEN_HEADER: [], APP_HEADER: []}
        for key, value in details.invocation_metadata or ():
            if key in found:
                found[key].append(value if isinstance(value, str) else "")
        return self._authenticate(found[TOKEN_HEADER], found[APP_HEADER])


def _checked(inner: Serve, method: str, principal: Principal) -> Serve:
    def serve(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            check(method, request, principal)
        except ShuffleError as error:
            refuse(context, error)
        return inner(request, context)

    return serve


def _checked_stream(handler: Any, method: str, principal: Principal) -> grpc.RpcMethodHandler[Any, Any]:
    """Every request of the stream is looked at, when it comes."""

    def checked(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        for request in requests:
            try:
                check(method, request, principal)
            except ShuffleError as error:
                refuse(context, error)
            yield request

    def serve(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        return handler.stream_stream(checked(requests, context), context)

    return grpc.stream_stream_rpc_method_handler(serve, handler.request_deserializer, handler.response_serializer)


def check(method: str, request: Any, principal: Principal) -> None:
    """Narrow a question about all applications to the principal's own.

    :raises PermissionDenied: the request is about an application, or in the name of a worker, that this principal may
        not act for.
    """
    if principal.app is None or method == FOR_ANY_TOKEN or (principal.worker and method in FOR_ANY_WORKER):
        return
    if principal.worker and method in WORKERS_OF:
        for worker in WORKERS_OF[method](request):
            principal.check_worker(worker)
        return
    if method == FOR_OWN_APP:
        request.app = request.app or principal.app
        principal.check(request.app)
    elif method in APP_OF:
        principal.check(APP_OF[method](request))
    else:
        raise _for_the_cluster(method)


def _of_commits(request: registry_pb.CommitRequest) -> Iterable[str]:
    """Who commits, and where the outputs are said to lie."""
    yield request.identity.worker
    for commit in request.commits:
        yield commit.output.worker
        yield from commit.output.copies


def _for_the_cluster(method: str) -> PermissionDenied:
    return PermissionDenied(f"{method} is for the cluster's token only")


def _refusing(error: ShuffleError, handler: Any) -> grpc.RpcMethodHandler[Any, Any]:
    """In place of `handler`, which may be a stream's, and None where there is no such method."""

    def serve(request: Any, context: grpc.ServicerContext) -> Any:
        refuse(context, error)

    if handler is not None and handler.stream_stream is not None:
        return grpc.stream_stream_rpc_method_handler(serve)
    return grpc.unary_unary_rpc_method_handler(serve)
