"""Reading secrets, tokens and certificates from files, checked where they are named and not at the first connection."""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Callable
from pathlib import Path

from shuffle_api.errors import InvalidArgument
from shuffle_transport.security import Keyring, TlsFiles, check_secret, check_token

CLIENT_OPTIONS = {
    "tls_ca": "file with the certificates (PEM) of who signed the server's; given: connections use TLS",
    "tls_cert": "file with this client's certificate (PEM), for a server that asks for one",
    "tls_key": "file with the private key (PEM) of tls_cert",
    "secret_file": "file with the cluster secret, from which tokens are derived; only for those who may act for all",
    "token_file": "file with a token: of the application, or the cluster's",
    "token": "a token itself, where a file is no choice",
}
"""The options by which a client is given its credentials, and what each is."""


def load_keyring(
    *,
    tls_ca: str = "",
    tls_cert: str = "",
    tls_key: str = "",
    secret_file: str = "",
    token_file: str = "",
    token: str = "",
) -> Keyring:
    """The values behind `CLIENT_OPTIONS`. Raises InvalidArgument naming the option or file that is wrong."""
    given = [
        name for name, value in (("secret_file", secret_file), ("token_file", token_file), ("token", token)) if value
    ]
    if len(given) > 1:
        raise InvalidArgument(f"both {given[0]} and {given[1]} are given", remedy="one is enough: leave out the other")
    if token_file:
        token = read_private(token_file, "token_file").decode("utf-8", "replace")
    return Keyring(
        client_tls(tls_ca, tls_cert, tls_key),
        read_secret(secret_file) if secret_file else b"",
        check_token(token, token_file or "token") if token else "",
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


def read_secret(path: str) -> bytes:
    """The cluster secret, without newlines at its end. Raises InvalidArgument: not private, not readable, too short."""
    return check_secret(read_private(path, "secret_file"), path)


def read_private(path: str, option: str) -> bytes:
    """A file that no stranger may read or replace. Raises InvalidArgument naming it."""
    data = _read(path, option)
    mode = os.stat(path).st_mode
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise InvalidArgument(
            f"{option} {path} may be read or written by other users (mode {stat.S_IMODE(mode):04o})",
            remedy=f"chmod 600 {path}, and make a new one if somebody may have seen it",
        )
    return data


def read_certificates(path: str, option: str) -> bytes:
    """One or more certificates (PEM). Raises InvalidArgument naming the file."""
    data = _read(path, option)
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
    pair = read_certificates(cert, "tls_cert"), _read(key, "tls_key")
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


def _read(path: str, option: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidArgument(
            f"{option} {path} cannot be read: {error.strerror}", remedy=f"give {option} a file that this user may read"
        ) from None
