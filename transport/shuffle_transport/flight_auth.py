"""A Flight endpoint's auth middleware: every verb passes it before anything is read (docs/protocol.md, Who may)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow.flight as fl

from shuffle_api.errors import ShuffleError, Unauthenticated
from shuffle_transport import messages
from shuffle_transport.security import ANYBODY, APP_HEADER, TOKEN_HEADER, Authenticate, Principal

MIDDLEWARE = "token"


class TokenMiddleware(fl.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """Goes with one call and says whom it comes from."""

    def __init__(self, principal: Principal, leave: Callable[[], object]) -> None:
        self.principal, self._leave = principal, leave

    def call_completed(self, exception: BaseException | None) -> None:
        self._leave()


class TokenMiddlewareFactory(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses calls that `authenticate` or `enter` refuses, and calls `refused` with each refusal.

    :param enter: counts a call of a principal; returns what is called at its end.
    """

    def __init__(
        self,
        authenticate: Authenticate,
        refused: Callable[[ShuffleError], None],
        enter: Callable[[Principal], Callable[[], object]] = lambda principal: lambda: None,
    ) -> None:
        super().__init__()
        self._authenticate, self._refused, self._enter = authenticate, refused, enter

    def start_call(self, info: fl.CallInfo, headers: Mapping[str, Sequence[Any]]) -> TokenMiddleware:
        """Raises FlightUnauthenticatedError, or FlightUnavailableError when nobody can say now whose the token is, or
        its application has too many calls under way; with the Error message as its extra info."""
        try:
            principal = self._authenticate(_texts(headers, TOKEN_HEADER), _texts(headers, APP_HEADER))
            return TokenMiddleware(principal, self._enter(principal))
        except ShuffleError as error:
            self._refused(error)
            extra = messages.error_message(error).SerializeToString()
            kind = fl.FlightUnauthenticatedError if isinstance(error, Unauthenticated) else fl.FlightUnavailableError
            raise kind(str(error), extra_info=extra) from None


def principal_of(context: fl.ServerCallContext) -> Principal:
    """Whom a call comes from; anybody at an endpoint that wants no tokens."""
    middleware = context.get_middleware(MIDDLEWARE)
    return ANYBODY if middleware is None else middleware.principal


def _texts(headers: Mapping[str, Sequence[Any]], name: str) -> list[str]:
    return [value if isinstance(value, str) else "" for value in headers.get(name, ())]
