"""The errors for connections that did not come about."""

from __future__ import annotations

import pytest

from shuffle_api.errors import ProtocolMismatch, ServerUnreachable, ShuffleError, Unauthenticated
from shuffle_transport.connect import not_connected
from shuffle_transport.security import TlsFiles

TRIED = "failed to connect to all addresses; last error: UNKNOWN: ipv6:%5B::1%5D:9110: "
SSL = "SSL_ERROR_SSL: error:1000007d:SSL routines:OPENSSL_internal:"
TLS = TlsFiles(b"")


@pytest.mark.parametrize(
    ("details", "tls", "kind", "words"),
    [
        (
            f"{TRIED}Failed to connect to remote host: Connection refused",
            None,
            ServerUnreachable,
            "no process listens there (connection refused)",
        ),
        (f"{TRIED}connect: No route to host (113)", None, ServerUnreachable, "there is no route to it"),
        (f"{TRIED}connect: Network is unreachable", None, ServerUnreachable, "there is no route to it"),
        (f"{TRIED}FD Shutdown: connect() timed out", None, ServerUnreachable, "connecting to it timed out"),
        (
            "errors resolving h:1: [field:hostname lookup error: Domain name not found]",
            None,
            ServerUnreachable,
            "its name does not resolve",
        ),
        (f"{TRIED}Socket closed", None, ServerUnreachable, "the connection was cut (Socket closed)"),
        (f"{TRIED}something new", None, ServerUnreachable, "something new"),
        (
            f"Flight returned unavailable error, with message: {TRIED}Tls handshake failed: {SSL}"
            "CERTIFICATE_VERIFY_FAILED: certificate has expired: OK",
            TLS,
            Unauthenticated,
            "the certificate of [::1]:9110 is not trusted: certificate has expired",
        ),
        (
            f"{TRIED}Hostname Verification Check failed.",
            TLS,
            Unauthenticated,
            "the certificate of [::1]:9110 is not trusted: it is of another host",
        ),
        (f"{TRIED}{SSL}WRONG_VERSION_NUMBER: OK", TLS, ProtocolMismatch, "does not speak TLS, this client does"),
    ],
)
def test_the_reason_is_a_sentence(details: str, tls: TlsFiles | None, kind: type[ShuffleError], words: str) -> None:
    error = not_connected("[::1]:9110", details, tls)
    assert type(error) is kind
    assert error.message.endswith(words)
    assert "[::1]:9110" in error.message
    assert "%5B" not in str(error)


def test_a_connection_that_is_cut_may_be_for_want_of_tls_or_of_a_certificate() -> None:
    assert "it may want TLS: then set tls_ca" in str(not_connected("h:1", "Socket closed", None))
    assert "it may want a client's certificate" in str(not_connected("h:1", "Socket closed", TLS))
