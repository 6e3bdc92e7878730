"""Reading secrets, tokens and certificates from files, checked where they are named and not at the first connection."""

from __future__ import annotations

import ssl
import stat
from collections.abc import Callable
from dataclasses import dataclass

from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import check_app
from shuffle_api.options import option
from shuffle_api.private_file import check_mode, read_file, read_private
from shuffle_transport.security import Keyring, TlsFiles, check_secrets
from shuffle_transport.tokens import check_token

CLIENT_OPTIONS = {
    "tls_ca": "file with certificates (PEM) that signed the server's: connections use TLS",
    "tls_cert": "file with this client's certificate (PEM), for a server that asks for one",
    "tls_key": "file with the private key (PEM) of that certificate",
    "secret_file": "file with the cluster secret, from which tokens are derived; only for those who may act for all",
    "token": "a token: of the application, or the cluster's",
}
"""The options by which a client is given its credentials, with a help text for each."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """These and no others, for a program that has nothing else to be told."""

    tls_ca: str = option("", area="Security", help=CLIENT_OPTIONS["tls_ca"])
    tls_cert: str = option("", area="Security", help=CLIENT_OPTIONS["tls_cert"])
    tls_key: str = option("", area="Security", help=CLIENT_OPTIONS["tls_key"])
    secret_file: str = option("", area="Security", help=CLIENT_OPTIONS["secret_file"])
    token: str = option("", secret=True, unless=("secret_file",), area="Security", help=CLIENT_OPTIONS["token"])


def load_keyring(
    *,
    tls_ca: str = "",
    tls_cert: str = "",
    tls_key: str = "",
    secret_file: str = "",
    token: str = "",
) -> Keyring:
    """The values behind `CLIENT_OPTIONS`. Raises InvalidArgument naming the option or file that is wrong."""
    if secret_file and token:
        raise InvalidArgument("both secret_file and token are given", remedy="one is enough: leave out the other")
    return Keyring(
        client_tls(tls_ca, tls_cert, tls_key),
        read_secrets(secret_file) if secret_file else (),
        check_token(token, "option token or token_file") if token else "",
    )


def client_tls(ca: str, cert: str, key: str) -> TlsFiles | None:
    """The client's side of TLS, None without `ca`. Raises InvalidArgument."""
    if not ca:
        if cert or key:
            raise InvalidArgument(
                "tls_cert or tls_key without tls_ca",
                remedy="add tls_ca, the certificate of who signed the server's: without it nothing is encrypted",
            )
        return None
    return TlsFiles(read_certificates(ca, "tls_ca"), *(read_pair(cert, key) if cert or key else (b"", b"")))


def read_secrets(path: str) -> tuple[bytes, ...]:
    """The cluster secrets, the one that makes tokens first. Raises InvalidArgument naming the file, or a line of it."""
    return check_secrets(read_private(path, "secret_file"), path)


def read_revoked(path: str) -> frozenset[str]:
    """The names of applications in a file, one on each line. Raises InvalidArgument naming the file."""
    text = read_file(path, "revoked_file").decode("utf-8", "replace")
    check_mode(path, "revoked_file", stat.S_IWOTH | stat.S_IWGRP, "written", "see that it says what you want")
    try:
        return frozenset(check_app(line.strip()) for line in text.splitlines() if line.strip())
    except InvalidArgument as error:
        raise InvalidArgument(f"revoked_file {path}: {error.message}", remedy="one name on each line") from None


def read_certificates(path: str, option: str) -> bytes:
    """One or more certificates (PEM). Raises InvalidArgument naming the file."""
    data = read_file(path, option)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=data.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise InvalidArgument(
            f"{option} {path} is no certificate in PEM form: {error}",
            remedy="the file begins with -----BEGIN CERTIFICATE-----; see openssl x509 -in FILE -text",
        ) from None
    return data


def read_pair(cert: str, key: str) -> tuple[bytes, bytes]:
    """A certificate (with those that signed it behind it) and its private key. Raises InvalidArgument."""
    if not cert or not key:
        missing, other = ("tls_cert", "tls_key") if not cert else ("tls_key", "tls_cert")
        raise InvalidArgument(
            f"{other} {cert or key} is given without {missing}", remedy=f"set {missing} too: they belong together"
        )
    pair = read_certificates(cert, "tls_cert"), read_file(key, "tls_key")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=_refuse_password(key))
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InvalidArgument(
                f"tls_key {key} is not the key of tls_cert {cert}",
                remedy="give the two files that were made together",
            ) from None
        raise InvalidArgument(
            f"tls_key {key} is no private key in PEM form: {error}",
            remedy="the file begins with -----BEGIN PRIVATE KEY-----",
        ) from None
    return pair


def _refuse_password(key: str) -> Callable[[], str]:
    def refuse() -> str:
        raise InvalidArgument(
            f"tls_key {key} is encrypted", remedy=f"store it without a password: openssl pkey -in {key} -out NEW_FILE"
        )

    return refuse
