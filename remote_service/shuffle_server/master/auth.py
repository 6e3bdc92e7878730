"""The control endpoint's auth middleware: nothing is served or even parsed without a token (docs/protocol.md, Who
may)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from shuffle_api.errors import PermissionDenied
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
FOR_THE_CLUSTER = frozenset(("Events",))


def principal_of(authenticate: Authenticate, headers: Iterable[tuple[str, str | bytes]]) -> Principal:
    """Whom a call comes from, by its headers. Raises Unauthenticated."""
    found: dict[str, list[str]] = {TOKEN_HEADER: [], APP_HEADER: []}
    for key, value in headers:
        if key in found:
            found[key].append(value if isinstance(value, str) else "")
    return authenticate(found[TOKEN_HEADER], found[APP_HEADER])


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
        raise PermissionDenied(f"{method} is for the cluster's token only")


def _of_commits(request: registry_pb.CommitRequest) -> Iterable[str]:
    """Who commits, and where the outputs are said to lie."""
    yield request.identity.worker
    for commit in request.commits:
        yield commit.output.worker
        yield from commit.output.copies
