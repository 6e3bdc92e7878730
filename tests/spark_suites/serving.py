"""The ways to run a suite: a server of each, and the Spark settings that lead there."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shuffle_plugins.spark import spark_conf
from shuffle_transport.credential_files import load_keyring
from shuffle_transport.security import NO_CREDENTIALS
from tests.certificates import make_party, make_secret
from tests.spark.server import Server

BY_WIRE = {"spark.shuffle.flight.handOver": "off"}
PATIENT = {f"spark.shuffle.flight.{name}": "240s" for name in ("connectTimeout", "ioTimeout", "retryWindow")}
"""A busy machine is no failure."""


@dataclass(frozen=True, slots=True)
class Mode:
    """``secure``: with TLS, certificates of both sides, and tokens."""

    settings: Mapping[str, str] = field(default_factory=dict)
    secure: bool = False


MODES = {
    "flight": Mode(),
    "wire": Mode(BY_WIRE),
    "encrypted": Mode(BY_WIRE | {"spark.io.encryption.enabled": "true"}),
    "tls": Mode(BY_WIRE, secure=True),
}


@contextmanager
def serving(name: str, directory: Path, version: str) -> Iterator[dict[str, str]]:
    """Start the server of a mode; the settings of Spark ``version`` for it."""
    mode = MODES[name]
    directory.mkdir(parents=True)
    arguments: list[str] = []
    files: dict[str, Any] = {}
    credentials = NO_CREDENTIALS
    if mode.secure:
        ours, theirs = make_party(directory / "server"), make_party(directory / "client")
        secret = make_secret(directory / "secret")
        arguments = [f"--tls-cert={ours.cert}", f"--tls-key={ours.key}"]
        arguments += [f"--tls-client-ca={theirs.ca}", f"--secret-file={secret}"]
        files = {"tls_ca": ours.ca, "tls_cert": theirs.cert, "tls_key": theirs.key, "secret_file": secret}
        credentials = load_keyring(**{option: str(path) for option, path in files.items()}).for_cluster()
    with Server(directory, *arguments, credentials=credentials) as server:
        conf = spark_conf(server.control, fallback="never", spark_version=version, **files)
        del conf["spark.jars"]  # it is on the class path
        yield {**conf, **PATIENT, **mode.settings}
