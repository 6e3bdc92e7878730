"""Tokens: the content of each kind, and the text it has (docs/protocol.md, Who may).

A token is an HMAC of what it allows, under the cluster secret. So a server that has the secret verifies every token
without a list of them, and a process that has the token of one application can make no other.

    token of application A = base64url(HMAC-SHA256(secret, "flight-shuffle/1/app/" + A))
    token of the cluster   = base64url(HMAC-SHA256(secret, "flight-shuffle/1/cluster"))
    one that expires at E  = "v2." + E + "." + base64url(HMAC-SHA256(secret, "flight-shuffle/2/app/" + E + "/" + A))
                             (of the cluster: "flight-shuffle/2/cluster/" + E + "/")
    token of worker W      = "worker." + W + "." + E + "."
                             + base64url(HMAC-SHA256(secret, "flight-shuffle/2/worker/" + E + "/" + W))

E is in seconds since 1970, UTC, 0 in the token of a worker that does not expire. Tokens are ASCII.
"""

from __future__ import annotations

import base64
import hmac
import time
from typing import TYPE_CHECKING

from shuffle_api.errors import InvalidArgument, Unauthenticated

if TYPE_CHECKING:
    from shuffle_transport.security import Principal

LEEWAY_SECONDS = 60
"""A token is taken for so long after its expiry: the clocks of those who make and check tokens differ."""

_VERSION = "v2"
_WORKER = "worker"
_DIGITS = 12  # of an expiry


class MissingToken(Unauthenticated):
    """The request has no token, or several."""


class ExpiredToken(Unauthenticated):
    """The token of the request is over.

    :ivar principal: whom it was made for; None if it has not been verified.
    """

    principal: Principal | None = None


class RevokedApp(Unauthenticated):
    """The token of the request is that of an application which the operator has revoked."""


def app_token(secret: bytes, app: str, expires: int = 0) -> str:
    """The token that lets its holder act for application `app` and no other; until `expires` if that is not 0."""
    return _for("app", secret, app, expires) if expires else _mac(secret, f"flight-shuffle/1/app/{app}")


def cluster_token(secret: bytes, expires: int = 0) -> str:
    """The token that lets its holder act for every application, and see them all."""
    return _for("cluster", secret, "", expires) if expires else _mac(secret, "flight-shuffle/1/cluster")


def worker_token(secret: bytes, worker: str, expires: int = 0) -> str:
    """The token that lets its holder be the worker of this id and no other."""
    return f"{_WORKER}.{worker}.{expires}.{_mac(secret, f'flight-shuffle/2/worker/{expires}/{worker}')}"


def _for(kind: str, secret: bytes, name: str, expires: int) -> str:
    return f"{_VERSION}.{expires}.{_mac(secret, f'flight-shuffle/2/{kind}/{expires}/{name}')}"


def _mac(secret: bytes, label: str) -> str:
    return base64.urlsafe_b64encode(hmac.digest(secret, label.encode("utf-8", "surrogateescape"), "sha256")).decode()


def expiry_of(token: str) -> int:
    """When a token expires, as its text says (nobody has verified that); 0: never."""
    parts = token.rsplit(".", 2)
    if len(parts) < 3 or not (parts[0] == _VERSION or parts[0].startswith(f"{_WORKER}.")):
        return 0
    digits = parts[1]
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS else 0


def worker_of(token: str) -> str:
    """The worker that a token names, as its text says; empty if it is no worker's."""
    kind, _, rest = token.partition(".")
    return rest.rsplit(".", 2)[0] if kind == _WORKER and rest.count(".") >= 2 else ""


def same_token(expected: str, given: str) -> bool:
    """Whether both are the same text; how long the answer takes says nothing of where they differ."""
    return hmac.compare_digest(expected.encode("utf-8", "surrogateescape"), given.encode("utf-8", "surrogateescape"))


def check_unexpired(expires: int, now: float, whose: str) -> None:
    """:raises ExpiredToken: a token with this expiry (0: none) is over; names `whose` it is.

    By the wall clock: makers and checkers of tokens are different machines, which share no other clock.
    """
    if expires and now > expires + LEEWAY_SECONDS:
        raise ExpiredToken(
            f"the token of {whose} expired at {_utc(expires)}, it is {_utc(now)} here",
            remedy="make a new one with flight-shuffle token --valid TIME and give it to every process that had this"
            " one; if it should be valid still, compare the clocks of the two machines",
        )


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def check_token(token: str, where: str) -> str:
    """Return `token` without white space around it.

    :raises InvalidArgument: it could not travel as a header; names `where` it comes from, not the token.
    """
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidArgument(
            f"{where} holds no token", remedy="flight-shuffle token --secret-file FILE --app APP prints one"
        )
    return token
