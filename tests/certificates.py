"""Certificates made for a test, and the secret beside them, as files that the products' options name."""

from __future__ import annotations

import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

import trustme

HOSTS = ("127.0.0.1", "localhost")


@dataclass(frozen=True, slots=True)
class Party:
    """One side's files: whom it trusts, its certificate, its key (PKCS #8, which Java reads too)."""

    ca: Path
    cert: Path
    key: Path


def make_party(directory: Path, ca: trustme.CA | None = None, hosts: tuple[str, ...] = HOSTS) -> Party:
    """Files of a party whose certificate `ca` (default: one of its own) has signed."""
    ca = ca or trustme.CA()
    directory.mkdir(parents=True, exist_ok=True)
    party = Party(directory / "ca.pem", directory / "cert.pem", directory / "key.pem")
    issued = ca.issue_cert(*hosts)
    ca.cert_pem.write_to_path(str(party.ca))
    party.cert.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    subprocess.run(
        ["openssl", "pkey", "-out", str(party.key)], input=issued.private_key_pem.bytes(), check=True, timeout=30
    )
    return party


def make_secret(path: Path) -> Path:
    """A file with a new cluster secret."""
    path.write_text(secrets.token_urlsafe(48) + "\n")
    path.chmod(0o600)
    return path
