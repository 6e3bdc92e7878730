"""The control endpoint's doorman: nothing is served or even parsed without a token (docs/protocol.md, Who may)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from shuffle_api.errors import PermissionDenied
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


def principal_of(secret: bytes, headers: Iterable[tuple[str, str | bytes]]) -> Principal:
    """Whom a call comes from, by its headers. Raises Unauthenticated."""
    found: dict[str, list[str]] = {TOKEN_HEADER: [], APP_HEADER: []}
    for key, value in headers:
        if key in found:
            found[key].append(value if isinstance(value, str) else "")
    return authenticate(secret, found[TOKEN_HEADER], found[APP_HEADER])


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
