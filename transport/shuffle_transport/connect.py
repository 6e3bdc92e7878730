"""Opening gRPC and Flight connections with credentials, and telling why one did not come about."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import grpc
import pyarrow.flight as fl

from shuffle_api.address import parse_address
from shuffle_api.errors import InvalidArgument, ProtocolMismatch, ServerUnreachable, ShuffleError, Unauthenticated
from shuffle_transport.freed_memory import keep_freed_memory
from shuffle_transport.grpc_polling import poll_directly
from shuffle_transport.security import Credentials, TlsFiles

_OPTIONS: list[tuple[str, int]] = [
    ("grpc.enable_http_proxy", 0),  # addresses are those of the cluster: http_proxy is for what lies outside
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]
# A master that was stopped keeps its connections: pings find it out. Connecting to it takes as long at most.
_CONTROL_OPTIONS: list[tuple[str, int]] = [
    ("grpc.enable_http_proxy", 0),  # addresses are those of the cluster: http_proxy is for what lies outside
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # else 60 s, whatever the line before says
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),  # any number
    ("grpc.min_reconnect_backoff_ms", 5_000),
]
_NOT_REACHED = (
    (("onnection refused",), "no process listens there (connection refused)"),
    (("o route to host", "etwork is unreachable"), "there is no route to it"),
    (("DNS", "ame or service not known", "ame resolution", "omain name not found"), "its name does not resolve"),
    (("imed out", "imeout occurred"), "connecting to it timed out"),
)
"""Signs in what gRPC reports of a connection that did not come about, and what a person calls that."""
_TRIED = re.compile(
    r"(?:Flight returned \w+ error, with message: )?failed to connect to all addresses; last error: \w+: \S+: "
)
_UNTRUSTED = re.compile(r"(?:certificate verify failed|CERTIFICATE_VERIFY_FAILED)(?:: ([^:]+))?")
_MOST_REPLY_BYTES = 64 << 20


def use_grpc() -> None:
    """For whatever uses gRPC to call first. Raises InvalidArgument in a process forked from one that has done so.

    gRPC does not survive a fork: the child has none of its threads, so calls hang there, or abort the process.
    """
    user = _first_user()
    if os.getpid() != user:
        raise InvalidArgument(
            f"process {os.getpid()} was forked from {user}, which had used Flight Shuffle before; gRPC, which it "
            "stands on, does not survive that",
            remedy="start processes with multiprocessing's 'spawn' or 'forkserver', or before the first use",
        )


@cache
def _first_user() -> int:
    return os.getpid()


def grpc_channel(address: str, tls: TlsFiles | None) -> grpc.Channel:
    """A channel to a control endpoint; connects with its first call. Raises InvalidArgument as `flight_connection`."""
    use_grpc()
    options = [("grpc.max_receive_message_length", _MOST_REPLY_BYTES), *_OPTIONS, *_CONTROL_OPTIONS]
    if tls is None:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(
        address, grpc.ssl_channel_credentials(tls.ca, tls.key or None, tls.cert or None), options=options
    )


def flight_connection(address: str, tls: TlsFiles | None, options: Sequence[tuple[str, int]] = ()) -> Any:
    """A `pyarrow.flight.FlightClient` of a data endpoint; connects with its first call. `options` are gRPC's.

    Raises InvalidArgument in a process forked from one that has used gRPC.
    """
    use_grpc()
    keep_freed_memory()
    poll_directly()
    generic_options = [*_OPTIONS, *options]
    if tls is None:
        return fl.connect(f"grpc+tcp://{address}", generic_options=generic_options)
    return fl.connect(
        f"grpc+tls://{address}",
        tls_root_certs=tls.ca,
        cert_chain=tls.cert or None,
        private_key=tls.key or None,
        generic_options=generic_options,
    )


def flight_options(credentials: Credentials, timeout: float | None) -> Any:
    """The `FlightCallOptions` of one call: its deadline in seconds, None for none, and the headers of `credentials`."""
    headers = [(name.encode(), value.encode()) for name, value in credentials.headers()]
    return fl.FlightCallOptions(timeout=timeout, headers=headers)


def not_connected(address: str, details: str, tls: TlsFiles | None) -> ShuffleError:
    """The error for a call that ended UNAVAILABLE with gRPC's `details`.

    Faults that a retry does not mend get errors of their own: a certificate that is not trusted (Unauthenticated), a
    server without TLS (ProtocolMismatch).
    """
    details = _TRIED.sub("", details)
    untrusted = _UNTRUSTED.search(details)
    if untrusted or "Hostname Verif" in details:
        reason = (untrusted[1] or details) if untrusted else "it is of another host"
        return Unauthenticated(
            f"the certificate of {address} is not trusted: {reason}",
            remedy="tls_ca must hold the certificate of who signed the server's, and the server's must name the host",
        )
    if "wrong version number" in details or "WRONG_VERSION_NUMBER" in details:
        return ProtocolMismatch(
            f"{address} does not speak TLS, this client does",
            remedy="start the server with --tls-cert and --tls-key, or leave out tls_ca",
        )
    if "Socket closed" in details or "onnection reset" in details:
        hint = "a client's certificate (tls_cert, tls_key)" if tls else "TLS: then set tls_ca"
        remedy = f"{ServerUnreachable.default_remedy}; it may want {hint}"
        return ServerUnreachable(address, f"the connection was cut ({details})", remedy=remedy)
    seen = (text for signs, text in _NOT_REACHED if any(sign in details for sign in signs))
    return ServerUnreachable(address, next(seen, details))


@lru_cache(maxsize=1024)
def is_own_address(address: str) -> bool:
    """Whether HOST:PORT is reached without a network: the route to it begins where it ends. Sends nothing.

    False for a name that does not resolve, and in a container for a server that is in another one.
    """
    to = parse_address(address, "the address of a server")
    try:
        for family, kind, protocol, _, where in socket.getaddrinfo(to.host, to.port, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind, protocol) as route:
                route.connect(where)
                if route.getsockname()[0] != where[0]:
                    return False
    except OSError:
        return False
    return True
