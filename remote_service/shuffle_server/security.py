"""What a server asks of its clients: read and checked once, when it starts."""

from __future__ import annotations

import ipaddress
import logging
import ssl
from dataclasses import dataclass, field
from functools import partial

from shuffle_api.errors import InvalidArgument
from shuffle_server.options import ServerOptions
from shuffle_server.registry_names import parse_registries
from shuffle_server.token_counts import TokenStatistics
from shuffle_server.tokens import AskedTokens, SecretTokens, ServerTokens
from shuffle_transport.credential_files import client_tls, read_certificates, read_pair
from shuffle_transport.security import Authenticate, Credentials, RenewedCredentials, TlsFiles

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """Contents (PEM) of the server's certificate and key; `client_ca` signs its clients' if they need one."""

    cert: bytes = field(repr=False)
    key: bytes = field(repr=False)
    client_ca: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ServerSecurity:
    """How both endpoints speak (`tls` None: in plain text), the tokens that they want (None: none), how TLS is spoken
    to other servers of the cluster (`peers` None: not), and to those who ask over HTTP. `close` it at the end."""

    tls: ServerTls | None = None
    tokens: ServerTokens | None = None
    peers: TlsFiles | None = None
    https: ssl.SSLContext | None = None

    def for_cluster(self) -> Credentials:
        """What this server shows to others of its cluster."""
        if self.tokens is None:
            return Credentials(tls=self.peers)
        return RenewedCredentials(tls=self.peers, renewed=self.tokens.of_cluster)

    def for_worker(self, worker: str) -> Credentials:
        """What the worker of this id shows to its master and to other workers."""
        if self.tokens is None:
            return Credentials(tls=self.peers)
        return RenewedCredentials(tls=self.peers, renewed=partial(self.tokens.of_worker, worker))

    @property
    def authenticate(self) -> Authenticate | None:
        """Whom a token comes from; None: none is wanted."""
        return None if self.tokens is None else self.tokens.authenticate

    def token_statistics(self) -> TokenStatistics:
        """What became of the tokens that were shown."""
        return TokenStatistics() if self.tokens is None else self.tokens.statistics()

    def start(self) -> None:
        """Read the files of secrets and tokens again when they change, from now on."""
        if self.tokens is not None:
            self.tokens.start()

    def close(self) -> None:
        """Idempotent."""
        if self.tokens is not None:
            self.tokens.close()


OPEN = ServerSecurity()


def load_security(options: ServerOptions) -> ServerSecurity:
    """The files that the options name. Raises InvalidArgument naming the option or file that is wrong."""
    tls = None
    if options.tls_cert or options.tls_key:
        client_ca = read_certificates(options.tls_client_ca, "tls_client_ca") if options.tls_client_ca else b""
        tls = ServerTls(*read_pair(options.tls_cert, options.tls_key), client_ca)
    elif options.tls_client_ca:
        raise InvalidArgument(
            f"tls_client_ca {options.tls_client_ca} is given without tls_cert and tls_key",
            remedy="add the server's own certificate and key: clients show theirs only over TLS",
        )
    peers = client_tls(options.tls_ca, options.tls_cert, options.tls_key) if options.tls_ca else None
    return ServerSecurity(tls, _tokens(options, peers), peers, None if tls is None else _https(options))


def _https(options: ServerOptions) -> ssl.SSLContext:
    """With the certificate of the other endpoints; a browser and a probe have none of their own to show."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(options.tls_cert, options.tls_key)
    return context


def _tokens(options: ServerOptions, peers: TlsFiles | None) -> ServerTokens | None:
    if options.secret_file and options.token_file:
        raise InvalidArgument(
            "both secret_file and token_file are given",
            remedy="one is enough: a worker with the secret makes its own token of it",
        )
    if options.revoked_file and not options.secret_file:
        raise InvalidArgument(
            f"revoked_file {options.revoked_file} is given without secret_file",
            remedy="add the secret; a worker with a token_file instead asks its master, which has both",
        )
    if options.token_file and not options.master:
        raise InvalidArgument(
            f"token_file {options.token_file} is given where there is no master to ask",
            remedy="only a worker does without the secret: give secret_file",
        )
    if options.token_file:
        masters = parse_registries(options.master, "--master").values()  # each checks the tokens of all applications
        return AskedTokens(options.token_file, ",".join(masters), peers)
    return SecretTokens(options.secret_file, options.revoked_file) if options.secret_file else None


def warn_of_strangers(hosts: set[str], security: ServerSecurity) -> None:
    """Say once in the log what anybody who reaches these addresses could do."""
    reachable = ", ".join(sorted(host for host in hosts if not is_loopback(host)))
    if not reachable:
        return
    if security.tokens is None:
        log.warning(
            "listening on %s without --secret-file: any caller may read and delete the data of every application"
            " (docs/security.md)",
            reachable,
        )
    elif security.tls is None:
        log.warning(
            "listening on %s without --tls-cert: data and tokens can be read on the network (docs/security.md)",
            reachable,
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on `host`. A name other than localhost counts as reachable."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
