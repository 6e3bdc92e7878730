"""Who may ask for what, as pure rules: tokens derived from one cluster secret, the headers that carry them.

A token is an HMAC of what it allows. So a server that has the secret knows every token without a list of them, and a
process that has the token of one application can make no other: not that of another application, not the cluster's.

    token of application A = base64url(HMAC-SHA256(secret, "flight-shuffle/1/app/" + A))
    token of the cluster   = base64url(HMAC-SHA256(secret, "flight-shuffle/1/cluster"))

Both are 44 ASCII characters, the padding included. Nothing in here shows a token in a repr or an error.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from shuffle_api.errors import InvalidArgument, PermissionDenied, Unauthenticated
from shuffle_api.ids import name_of

SECRET_BYTES = 32
"""Least length of the cluster secret: that of the hash."""

TOKEN_HEADER = "authorization"
APP_HEADER = "flight-shuffle-app"
SCHEME = "Bearer"

_APP_LABEL = b"flight-shuffle/1/app/"
_CLUSTER_LABEL = b"flight-shuffle/1/cluster"


def app_token(secret: bytes, app: str) -> str:
    """The token that lets its holder act for application `app` and no other."""
    return _token(secret, _APP_LABEL + app.encode())


def cluster_token(secret: bytes) -> str:
    """The token that lets its holder act for every application, and see them all."""
    return _token(secret, _CLUSTER_LABEL)


def _token(secret: bytes, label: bytes) -> str:
    return base64.urlsafe_b64encode(hmac.digest(secret, label, "sha256")).decode()


def same_token(expected: str, given: str) -> bool:
    """Whether both are the same text; how long the answer takes says nothing of where they differ."""
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "surrogateescape"))


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom a request comes from: one application, or (None) somebody who may act for all of them."""

    app: str | None = None

    def check(self, app: str) -> None:
        """:raises PermissionDenied: this principal may not act for `app`, an application or one run of it."""
        if self.app is not None and self.app != name_of(app):
            raise PermissionDenied(
                f"a request about application {app!r} with the token of application {self.app!r}",
                remedy="use the token of the application that the request is about",
            )


ANYBODY = Principal()
"""Whom requests come from at a server without a secret: everybody may do everything."""


def authenticate(secret: bytes, tokens: Sequence[str], apps: Sequence[str]) -> Principal:
    """Whom a call comes from, by the values of its headers `authorization` and `flight-shuffle-app`.

    Without an application the token must be the cluster's; with one, that application's or the cluster's.

    :raises Unauthenticated: no token, several, or another one.
    """
    if len(tokens) != 1 or len(apps) > 1:
        raise Unauthenticated(
            "a call without a token" if not tokens else "a call with several tokens or applications",
            remedy="this server wants a token: set secret_file, or token_file (docs/security.md)",
        )
    scheme, _, token = tokens[0].partition(" ")
    app = apps[0] if apps else ""
    if scheme.lower() == SCHEME.lower():
        if same_token(cluster_token(secret), token):
            return ANYBODY
        if app and same_token(app_token(secret, app), token):
            return Principal(app)
    raise Unauthenticated(
        f"the token is not that of application {app!r}" if app else "the token is not the cluster's",
        remedy="derive it from the secret file of this very server: flight-shuffle token --secret-file FILE"
        + (f" --app {app}" if app else " --cluster; the token of an application goes with its name"),
    )


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The contents (PEM) of the files with which a client speaks TLS; `cert` and `key` where the server asks for them.

    `ca` holds the certificates one of which must have signed the server's.
    """

    ca: bytes = field(repr=False)
    cert: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client shows a server: `token` of `app` ("": the cluster's), and how it speaks TLS (None: not)."""

    app: str = ""
    token: str = field(default="", repr=False)
    tls: TlsFiles | None = None

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The metadata of every call; empty without a token."""
        if not self.token:
            return ()
        token = (TOKEN_HEADER, f"{SCHEME} {self.token}")
        return (token, (APP_HEADER, self.app)) if self.app else (token,)


NO_CREDENTIALS = Credentials()


@dataclass(frozen=True, slots=True)
class Keyring:
    """What a process was given to make credentials of: the cluster secret, one token, or neither; and TLS files."""

    tls: TlsFiles | None = None
    secret: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)

    def for_app(self, app: str) -> Credentials:
        """The credentials to act for `app`, an application or one run of it; without a token the same for all."""
        if not self.wants_tokens:
            return Credentials(tls=self.tls)
        app = name_of(app)
        return Credentials(app, app_token(self.secret, app) if self.secret else self.token, self.tls)

    def for_cluster(self) -> Credentials:
        """The credentials to act for all applications."""
        return Credentials("", cluster_token(self.secret) if self.secret else self.token, self.tls)

    def admit(self, tokens: Sequence[str], apps: Sequence[str]) -> Principal:
        """Whom a call to this process comes from, as `authenticate`, at a peer that need not have the secret.

        Who has one token knows no other: it admits those who show the same, for the application that they name.

        :raises Unauthenticated: no token, several, or another one.
        """
        if self.secret:
            return authenticate(self.secret, tokens, apps)
        app = apps[0] if len(apps) == 1 else ""
        scheme, _, token = tokens[0].partition(" ") if len(tokens) == 1 else ("", "", "")
        if app and self.token and scheme.lower() == SCHEME.lower() and same_token(self.token, token):
            return Principal(app)
        raise Unauthenticated(
            f"the token is not the one of application {app!r} that this task has"
            if tokens
            else "a call without a token",
            remedy="give all tasks of an application, and its driver, the same token, or the secret that it is made of",
        )

    @property
    def wants_tokens(self) -> bool:
        """Who was given a secret or a token serves nobody without one."""
        return bool(self.secret or self.token)


NO_KEYS = Keyring()


def check_secret(secret: bytes, where: str) -> bytes:
    """Return `secret` without newlines at its end.

    :raises InvalidArgument: it is shorter than 32 bytes; names `where` it comes from.
    """
    secret = secret.rstrip(b"\r\n")
    if len(secret) < SECRET_BYTES:
        raise InvalidArgument(
            f"the secret in {where} has {len(secret)} bytes, fewer than {SECRET_BYTES}",
            remedy=f"make a good one: openssl rand -base64 48 > {where}",
        )
    return secret


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
