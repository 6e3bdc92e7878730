"""What the tasks of a shuffle ask of each other: every one of them serves, or connects, or both (docs/security.md)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from shuffle_api.errors import InvalidArgument, ShuffleError
from shuffle_plugins.pipelined.options import PipelinedOptions
from shuffle_transport.credential_files import CLIENT_OPTIONS, load_keyring, read_certificates
from shuffle_transport.flight_auth import MIDDLEWARE, TokenMiddlewareFactory
from shuffle_transport.security import Keyring

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PeerSecurity:
    """How this process connects (`keys`), and whom it lets connect: holders of the same token or secret, and with
    `client_ca` (PEM) only those with a certificate that it signed."""

    keys: Keyring
    client_ca: bytes = field(default=b"", repr=False)

    @property
    def scheme(self) -> str:
        """Of this process's Flight location."""
        return "grpc+tcp" if self.keys.tls is None else "grpc+tls"

    def server_arguments(self) -> dict[str, Any]:
        """Arguments of `pyarrow.flight.FlightServerBase`.

        :raises InvalidArgument: connections use TLS, and there is no certificate to serve with.
        """
        arguments: dict[str, Any] = {}
        tls = self.keys.tls
        if tls is not None:
            if not tls.cert:
                raise InvalidArgument(
                    "tls_ca is given without tls_cert and tls_key: what this process serves would go out in plain text",
                    remedy="who writes, or registers shuffles, needs a certificate that names its option 'host'",
                )
            arguments["tls_certificates"] = [(tls.cert, tls.key)]
            arguments["verify_client"] = bool(self.client_ca)
            arguments["root_certificates"] = self.client_ca or None
        if self.keys.wants_tokens:
            arguments["middleware"] = {MIDDLEWARE: TokenMiddlewareFactory(self.keys.admit, _note_refusal)}
        return arguments


def load_peer_security(options: PipelinedOptions) -> PeerSecurity:
    """The files that the options name. Raises InvalidArgument naming the option or file that is wrong."""
    keys = load_keyring(**{name: getattr(options, name) for name in CLIENT_OPTIONS})
    if not options.tls_client_ca:
        return PeerSecurity(keys)
    if keys.tls is None:
        raise InvalidArgument(
            f"tls_client_ca {options.tls_client_ca} is given without tls_ca",
            remedy="add tls_ca, tls_cert and tls_key: certificates are shown only over TLS",
        )
    return PeerSecurity(keys, read_certificates(options.tls_client_ca, "tls_client_ca"))


def _note_refusal(error: ShuffleError) -> None:
    log.warning("call refused: %s", error)
