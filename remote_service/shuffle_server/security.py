"""What a server asks of its clients: read and checked once, when it starts."""

from __future__ import annotations

import ipaddress
import logging
from dataclasses import dataclass, field

from shuffle_api.errors import InvalidArgument
from shuffle_server.options import ServerOptions
from shuffle_transport.credential_files import load_keyring, read_certificates, read_pair, read_secret
from shuffle_transport.security import Credentials

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """Contents (PEM) of the server's certificate and key; `client_ca` signs its clients' if they need one."""

    cert: bytes = field(repr=False)
    key: bytes = field(repr=False)
    client_ca: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ServerSecurity:
    """How both endpoints speak (`tls` None: in plain text), and the secret behind the tokens (empty: none wanted)."""

    tls: ServerTls | None = None
    secret: bytes = field(default=b"", repr=False)


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
    return ServerSecurity(tls, read_secret(options.secret_file) if options.secret_file else b"")


def warn_of_strangers(hosts: set[str], security: ServerSecurity) -> None:
    """Say once in the log what anybody who reaches these addresses could do."""
    reachable = ", ".join(sorted(host for host in hosts if not is_loopback(host)))
    if not reachable:
        return
    if not security.secret:
        log.warning(
            "listening on %s without --secret-file: whoever reaches this server may read and delete the data of every"
            " application (docs/security.md)",
            reachable,
        )
    elif security.tls is None:
        log.warning(
            "listening on %s without --tls-cert: whoever sees the traffic can read data and tokens (docs/security.md)",
            reachable,
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on `host`. A name other than localhost counts as reachable."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def peer_credentials(options: ServerOptions) -> Credentials:
    """What this server shows to others of its cluster. Raises InvalidArgument naming what is wrong."""
    pair = {"tls_cert": options.tls_cert, "tls_key": options.tls_key} if options.tls_ca else {}
    return load_keyring(tls_ca=options.tls_ca, secret_file=options.secret_file, **pair).for_cluster()
