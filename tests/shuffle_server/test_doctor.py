"""`flight-shuffle doctor`: each check that can fail does, and says what to do."""

from __future__ import annotations

import resource
import socket
import ssl
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from bench.harness.server import ServerProcess
from shuffle_api.address import Address
from shuffle_plugins.spark.command import check_java
from shuffle_server import __version__
from shuffle_server.cli import reachability
from shuffle_server.cli.machine import LEAST_FILES, check_descriptors
from shuffle_server.cli.reachability import MOST_SKEW_SECONDS, _check_certificate, check_server
from shuffle_transport.command_line import Finding
from shuffle_transport.credential_files import load_keyring
from shuffle_transport.progress import Progress
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import TlsFiles
from tests.certificates import make_party

TIMEOUT_S = 20.0


class AnsweringClient:
    """A control client whose master gives these answers."""

    def __init__(self, hello: pb.HelloReply, status: pb.StatusReply) -> None:
        self._hello, self._status = hello, status

    def hello(self) -> pb.HelloReply:
        return self._hello

    def call(self, verb: str, request: pb.StatusRequest) -> pb.StatusReply:
        return self._status


def findings(server: str, **credentials: str) -> dict[str, Finding]:
    with Progress("doctor", hidden=True) as progress:
        return {each.check: each for each in check_server(server, load_keyring(**credentials), TIMEOUT_S, progress)}


def of_answers(monkeypatch: pytest.MonkeyPatch, server: str, hello: pb.HelloReply, **states: str) -> dict[str, Finding]:
    status = pb.StatusReply(server=hello.server)
    status.states.extend(pb.WorkerStatus(worker=worker, release=release) for worker, release in states.items())

    @contextmanager
    def answering(*_: Any, **__: Any) -> Iterator[AnsweringClient]:
        yield AnsweringClient(hello, status)

    monkeypatch.setattr(reachability, "control_client", answering)
    return findings(server)


def test_a_clock_that_is_wrong_fails(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (-MOST_SKEW_SECONDS - 60, MOST_SKEW_SECONDS + 60):
        hello = pb.HelloReply(server=f"flight-shuffle/{__version__}", unix_seconds=time.time() + wrong)
        found = of_answers(monkeypatch, server.control, hello)["clocks"]
        assert (found.state, found.fix.startswith("run a time service")) == ("failed", True)


def test_other_releases_are_named(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    found = of_answers(
        monkeypatch, server.control, pb.HelloReply(server="flight-shuffle/0.0.9"), old="0.0.8", new="0.0.9"
    )
    assert found["version"].state == found["version of worker old"].state == "warning"
    assert found["version of worker old"].seen == "release 0.0.8, the master 0.0.9"
    assert "version of worker new" not in found


def test_a_master_without_workers_fails(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_answers(monkeypatch, server.control, pb.HelloReply())["workers"].state == "failed"


def test_certificates_are_checked_at_both_endpoints(tmp_path: Path) -> None:
    party, stranger = make_party(tmp_path / "party"), make_party(tmp_path / "stranger")
    certificate = ("--tls-cert", str(party.cert), "--tls-key", str(party.key))
    credentials = load_keyring(tls_ca=str(party.ca)).for_cluster()
    with ServerProcess(tmp_path / "data", tmp_path / "log", certificate, credentials=credentials) as server:
        well = findings(server.control, tls_ca=str(party.ca))
        assert [well[f"certificate of {at}"].state for at in (server.control, server.data)] == ["ok", "ok"]
        assert findings(server.control, tls_ca=str(stranger.ca))["server"].state == "failed"
        assert findings(server.control)["server"].state == "failed"


def test_a_certificate_that_ends_soon_is_named(tmp_path: Path) -> None:
    ca, soon = trustme.CA(), datetime.now(UTC) + timedelta(days=2)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1", not_after=soon).configure_cert(served)
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        listening.settimeout(TIMEOUT_S)
        accepted = pool.submit(lambda: served.wrap_socket(listening.accept()[0], server_side=True))
        keys = TlsFiles(ca=ca.cert_pem.bytes())
        found = _check_certificate(Address("127.0.0.1", listening.getsockname()[1]), keys, TIMEOUT_S)
        accepted.result(TIMEOUT_S).close()
    assert (found.state, found.fix.startswith("renew it")) == ("warning", True)


@pytest.mark.parametrize(
    ("says", "seen"),
    [('java version "1.8.0_392"', "Java 8"), ('openjdk version "11.0.2"', "Java 11"), ("what?", "does not say")],
)
def test_a_java_that_is_too_old_fails(says: str, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = check_java()
    assert (found.state, seen in found.seen, found.fix.startswith("install Java 17")) == ("failed", True, True)


def test_a_machine_without_java_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert check_java().state == "failed"


def test_a_low_limit_of_open_files_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, LEAST_FILES - 1))
    found = check_descriptors()
    assert (found.state, f"may open {LEAST_FILES - 1}" in found.seen) == ("warning", True)
