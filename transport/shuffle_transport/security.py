"""Who may ask for what, as pure rules: the secrets and revocations of a server, the headers that carry tokens.

Nothing in here shows a token in a repr or an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shuffle_api.errors import InvalidArgument, PermissionDenied, Unauthenticated
from shuffle_api.ids import is_run, name_of
from shuffle_transport.tokens import (
    ExpiredToken,
    MissingToken,
    RevokedApp,
    app_token,
    check_unexpired,
    cluster_token,
    expiry_of,
    same_token,
    worker_of,
    worker_token,
)

SECRET_BYTES = 32
"""Least length of a cluster secret: that of the hash."""

MOST_SECRETS = 4
"""In one file. A token that none of them has made is compared with what each of them makes."""

TOKEN_HEADER = "authorization"
APP_HEADER = "flight-shuffle-app"
SCHEME = "Bearer"


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom a request comes from: one application, one worker, or (`app` None) somebody who may act for all of them.

    A worker's `app` is "", the name of no application.
    """

    app: str | None = None
    worker: str = ""

    def check(self, app: str) -> None:
        """:raises PermissionDenied: this principal may not act for `app`, an application or one run of it."""
        if self.app is not None and (self.worker or self.app != name_of(app)):
            raise PermissionDenied(
                f"a request about application {app!r} with the token of {self}",
                remedy="use the token of the application that the request is about",
            )

    def check_worker(self, worker: str) -> None:
        """:raises PermissionDenied: this principal may not act as the worker of this id."""
        if self.app is not None and (not self.worker or self.worker != worker):
            raise PermissionDenied(
                f"a request in the name of worker {worker!r} with the token of {self}",
                remedy=f"flight-shuffle token --secret-file FILE --worker {worker or 'ID'} makes the token of a worker",
            )

    def check_member(self, what: str) -> None:
        """:raises PermissionDenied: this is no worker of the cluster, and nobody who may act for it; names `what`."""
        if self.app is not None and not self.worker:
            raise PermissionDenied(
                f"{what} are for the cluster's token and those of its workers only, not for that of {self}"
            )

    def __str__(self) -> str:
        if self.app is None:
            return "the cluster"
        return f"worker {self.worker!r}" if self.worker else f"application {self.app!r}"


ANYBODY = Principal()
"""Whom requests come from at a server without a secret: everybody may do everything."""

Authenticate = Callable[[Sequence[str], Sequence[str]], Principal]
"""Whom a call comes from, by the values of its headers `authorization` and `flight-shuffle-app`, or Unauthenticated."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Whom a server lets in: holders of tokens made of any of its `secrets` (the first makes its own), except those of
    applications that are `revoked`. `now`: the wall clock, by which tokens expire."""

    secrets: tuple[bytes, ...] = field(repr=False)
    revoked: frozenset[str] = frozenset()
    now: Callable[[], float] = time.time

    def authenticate(self, tokens: Sequence[str], apps: Sequence[str]) -> Principal:
        """Whom a call comes from, by the values of its headers `authorization` and `flight-shuffle-app`.

        Without an application the token must be the cluster's or a worker's; with one, that application's or the
        cluster's.

        :raises MissingToken, RevokedApp, ExpiredToken: no token or several, one that is revoked, one that is over.
        :raises Unauthenticated: another one.
        """
        token, app = the_token(tokens, apps), apps[0] if apps else ""
        expires = expiry_of(token)
        principal = self._maker_of(token, app, expires)
        if principal is None:
            raise wrong_token(app)
        if app in self.revoked and principal.app == app:
            raise RevokedApp(
                f"application {app!r} is revoked at this server",
                remedy="its operator has listed it in --revoked-file; take it out there to let it in again",
            )
        try:
            check_unexpired(expires, self.now(), str(principal))
        except ExpiredToken as error:
            error.principal = principal
            raise
        return principal

    def _maker_of(self, token: str, app: str, expires: int) -> Principal | None:
        """Whose token this is. None: nobody's, or it is shown for another application."""
        worker = worker_of(token)
        for secret in self.secrets:
            if worker:
                if not app and same_token(worker_token(secret, worker, expires), token):
                    return Principal("", worker)
            elif app and same_token(app_token(secret, app, expires), token):  # first: it is of most calls
                return Principal(app)
            elif same_token(cluster_token(secret, expires), token):
                return ANYBODY
        return None


def the_token(tokens: Sequence[str], apps: Sequence[str]) -> str:
    """The one token among the headers of a call; "" if what is there is none.

    :raises MissingToken: there is none, or one could not say whose it is.
    :raises Unauthenticated: the application's name is not valid: errors and the log repeat no other text.
    """
    if len(tokens) != 1 or len(apps) > 1:
        raise MissingToken(
            "a call without a token" if not tokens else "a call with several tokens or applications",
            remedy="this server wants a token: set secret_file, or token_file (docs/security.md)",
        )
    if apps and apps[0] and not is_run(apps[0]):
        raise Unauthenticated(
            f"the header {APP_HEADER} is not the name of an application",
            remedy="show the token of an application with the application's name (docs/protocol.md)",
        )
    scheme, _, token = tokens[0].partition(" ")
    return token if scheme.lower() == SCHEME.lower() else ""


def wrong_token(app: str) -> Unauthenticated:
    """Of a call for application `app`, or ("") for none."""
    return Unauthenticated(
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
class RenewedCredentials(Credentials):
    """Credentials of a server, whose secret may change: `renewed` is the token of this moment."""

    renewed: Callable[[], str] = field(default=str, repr=False)

    def headers(self) -> tuple[tuple[str, str], ...]:
        return Credentials("", self.renewed(), self.tls).headers()


@dataclass(frozen=True, slots=True)
class Keyring:
    """What a process was given to make credentials of: cluster secrets, one token, or neither; and TLS files.

    The first of the `secrets` makes tokens, those of all are admitted.
    """

    tls: TlsFiles | None = None
    secrets: tuple[bytes, ...] = field(default=(), repr=False)
    token: str = field(default="", repr=False)

    def for_app(self, app: str) -> Credentials:
        """The credentials to act for `app`, an application or one run of it; without a token the same for all."""
        if not self.wants_tokens:
            return Credentials(tls=self.tls)
        app = name_of(app)
        return Credentials(app, app_token(self.secrets[0], app) if self.secrets else self.token, self.tls)

    def for_cluster(self) -> Credentials:
        """The credentials to act for all applications."""
        return Credentials("", cluster_token(self.secrets[0]) if self.secrets else self.token, self.tls)

    def admit(self, tokens: Sequence[str], apps: Sequence[str]) -> Principal:
        """Whom a call to this process comes from, as `Admission`, at a peer that need not have a secret.

        Who has one token knows no other: it admits those who show the same, for the application that they name, until
        it expires.

        :raises Unauthenticated: no token, several, or another one.
        """
        if self.secrets:
            return Admission(self.secrets).authenticate(tokens, apps)
        token, app = the_token(tokens, apps), apps[0] if apps else ""
        if app and self.token and same_token(self.token, token):
            check_unexpired(expiry_of(token), time.time(), f"application {app!r}")
            return Principal(app)
        raise Unauthenticated(
            f"the token is not the one of application {app!r} that this task has",
            remedy="give all tasks of an application, and its driver, the same token, or the secret that it is made of",
        )

    @property
    def wants_tokens(self) -> bool:
        """Who was given a secret or a token serves nobody without one."""
        return bool(self.secrets or self.token)


NO_KEYS = Keyring()


def check_secrets(text: bytes, where: str) -> tuple[bytes, ...]:
    """The secrets in a file, one on each line that is not empty.

    :raises InvalidArgument: there is none, there are too many, or one is shorter than 32 bytes; names `where`.
    """
    secrets = tuple(line for line in text.replace(b"\r", b"\n").split(b"\n") if line)
    if len(secrets) > MOST_SECRETS:
        raise InvalidArgument(
            f"{where} holds {len(secrets)} secrets, the most are {MOST_SECRETS}",
            remedy="one on each line: the one that makes tokens, and those of which tokens are still in use",
        )
    for number, secret in enumerate(secrets or (b"",), 1):
        if len(secret) < SECRET_BYTES:
            raise InvalidArgument(
                f"the secret on line {number} of {where} has {len(secret)} bytes, fewer than {SECRET_BYTES}",
                remedy=f"make a good one, which is a single line: openssl rand -base64 48 > {where}",
            )
    return secrets
