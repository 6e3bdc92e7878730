"""TLS at real server processes: who trusts whom, what the wire shows, which files are refused at the start."""

from __future__ import annotations

import re
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from bench.harness.server import ServerProcess
from shuffle_api.errors import (
    InvalidArgument,
    ProtocolMismatch,
    ServerUnreachable,
    Unauthenticated,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.interfaces import OptionValue
from shuffle_api.options import parse_options
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.options import ServerOptions
from shuffle_server.security import load_security
from shuffle_transport.blocks import Block, table_rows, totals_of
from shuffle_transport.checksum import crc32c
from shuffle_transport.control_client import ControlClient
from shuffle_transport.credential_files import load_keyring
from shuffle_transport.flight_client import FlightClient, PushTarget
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.certificates import make_party, make_secret
from tests.shuffle_server.helpers import read_all, write_map
from tests.shuffle_server.proxy import RecordingProxy
from tests.shuffle_server.secured import VERBS, Secured
from tests.shuffle_server.test_server import run_cli

MARK = b"nobody but the reducers may read this, whatever wire it takes"


# ------------------------------------------------------------------ TLS


def test_a_client_without_tls_is_refused_and_told_of_it(secured: Secured) -> None:
    plain = replace(secured.keys.for_app("A"), tls=None)
    for verb, address in (("Hello", secured.server.control), ("DoPut", secured.server.data)):
        with pytest.raises(ServerUnreachable, match=f"{address}.*set tls_ca"):
            VERBS[verb](secured, plain, "A")


def test_a_client_that_trusts_somebody_else_refuses_the_server_by_address(secured: Secured, tmp_path: Path) -> None:
    other = load_keyring(tls_ca=str(make_party(tmp_path / "other").ca), secret_file=str(secured.secret_file))
    for verb, address in (("Hello", secured.server.control), ("DoPut", secured.server.data)):
        with pytest.raises(Unauthenticated, match=f"certificate of {address} is not trusted.*tls_ca"):
            VERBS[verb](secured, other.for_app("A"), "A")


def test_a_certificate_for_another_host_is_not_trusted(tmp_path: Path) -> None:
    ca = trustme.CA()
    party = make_party(tmp_path / "tls", ca, ("shuffle.example.org",))
    arguments = ["--tls-cert", str(party.cert), "--tls-key", str(party.key)]
    keys = load_keyring(tls_ca=str(party.ca))
    with ServerProcess(tmp_path / "data", tmp_path / "log", arguments) as server:
        client = ControlClient(server.control, client="test", timeout=60, credentials=keys.for_cluster())
        with closing(client), pytest.raises(Unauthenticated, match=f"certificate of {server.control}"):
            client.hello()


def test_a_tls_client_at_a_server_without_tls_is_told_so(secured: Secured, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", tmp_path / "log") as server:
        scene = replace(secured, server=server)
        for verb, address in (("Hello", server.control), ("DoPut", server.data)):
            with pytest.raises(ProtocolMismatch, match=f"{address} does not speak TLS"):
                VERBS[verb](scene, secured.keys.for_app("A"), "A")


def test_mutual_tls_wants_a_certificate_that_the_right_authority_signed(tmp_path: Path) -> None:
    clients = trustme.CA()
    own, client, stranger = make_party(tmp_path / "s"), make_party(tmp_path / "c", clients), make_party(tmp_path / "x")
    arguments = ["--tls-cert", str(own.cert), "--tls-key", str(own.key), "--tls-client-ca", str(client.ca)]
    with ServerProcess(
        tmp_path / "data",
        tmp_path / "log",
        arguments,
        credentials=load_keyring(tls_ca=str(own.ca), tls_cert=str(client.cert), tls_key=str(client.key)).for_cluster(),
    ) as server:
        base: dict[str, OptionValue] = {"server": server.control, "timeout": 60, "retry": 0, "tls_ca": str(own.ca)}
        right = base | {"tls_cert": str(client.cert), "tls_key": str(client.key)}
        with RemoteShuffle(right) as plugin, plugin.master("app") as master:
            handle = master.register_shuffle(2, 1)
            written = write_map(plugin, handle, 0)
            assert read_all(plugin, handle) == written
        for wrong in (base, base | {"tls_cert": str(stranger.cert), "tls_key": str(stranger.key)}):
            with RemoteShuffle(wrong) as plugin, pytest.raises(ServerUnreachable, match=rf"{server.control}.*tls_cert"):
                plugin.master("app")
            keys = load_keyring(**{name: str(value) for name, value in wrong.items() if name.startswith("tls_")})
            data = FlightClient(server.data, timeout=60, credentials=keys.for_app("app"))
            with closing(data), pytest.raises(ServerUnreachable, match=rf"{server.data}.*tls_cert"):
                list(data.pull(pb.GetTicket(shuffle=pb.ShuffleKey(app="app"))))


@pytest.mark.parametrize("tls", [True, False])
def test_payload_and_token_cross_the_wire_in_plain_text_only_without_tls(tmp_path: Path, tls: bool) -> None:
    """Without TLS too, so that the search is known to find what it looks for."""
    party, secret_file = make_party(tmp_path / "tls"), make_secret(tmp_path / "secret")
    arguments = ["--secret-file", str(secret_file)]
    arguments += ["--tls-cert", str(party.cert), "--tls-key", str(party.key)] if tls else []
    options = {"secret_file": str(secret_file)} | ({"tls_ca": str(party.ca)} if tls else {})
    keys = load_keyring(**options)
    with ServerProcess(tmp_path / "data", tmp_path / "log", arguments, credentials=keys.for_cluster()) as server:
        with RecordingProxy(server.control) as control, RecordingProxy(server.data) as data:
            credentials = keys.for_app("app")
            client = ControlClient(control.address, client="test", timeout=60, credentials=credentials)
            with closing(client):
                client.call("RegisterApp", pb.RegisterAppRequest(app="app", instance="i"))
                key = pb.ShuffleKey(app="app", shuffle=1)
                client.call(
                    "RegisterShuffle",
                    pb.RegisterShuffleRequest(shuffle=key, partitions=1, maps=1, codec="none", content="opaque"),
                )
            flight = FlightClient(data.address, timeout=60, credentials=credentials)
            with closing(flight):
                blocks = [Block(0, crc32c(MARK), len(MARK), 1, MARK)]
                target = PushTarget(ShuffleId("app", 1), MapAttempt(0, 0), 1, "none")
                flight.push(target, blocks, first_block=0, end=totals_of(table_rows(blocks)), commit=True)
                [pulled] = flight.pull(pb.GetTicket(shuffle=key, end_partition=1))
                assert bytes(pulled.payload) == MARK  # type: ignore[union-attr]
        seen = control.seen() + data.seen()
    assert len(seen) > 1000
    assert seen.count(MARK) == (0 if tls else 2)
    assert (credentials.token.encode() in seen) == (not tls)
    assert (b"flight_shuffle.v1" in seen) == (not tls)


def test_the_commands_of_the_security_document_set_up_a_server_that_a_client_trusts(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    commands = re.findall(r"```sh\n(.*?)```", text, re.S)[0].splitlines()
    assert len(commands) == 5
    for command in commands[:3]:
        local = command.replace("DNS:shuffle.example.org", "IP:127.0.0.1")
        subprocess.run(local, shell=True, cwd=tmp_path, check=True, capture_output=True, timeout=240)
    names = re.findall(r"(--tls-cert|--tls-key|--secret-file) (\S+)", commands[3])
    assert len(names) == 3
    arguments = [word for option, name in names for word in (option, str(tmp_path / name))]
    keys = load_keyring(tls_ca=str(tmp_path / "ca.pem"), secret_file=str(tmp_path / "secret"))
    with ServerProcess(tmp_path / "data", tmp_path / "log", arguments, credentials=keys.for_cluster()) as server:
        assert server.status().workers


# ------------------------------------------------------------------ wrong files, logs


def test_wrong_combinations_and_files_are_named_at_the_start(tmp_path: Path) -> None:
    party, other = make_party(tmp_path / "a"), make_party(tmp_path / "b")
    secret = make_secret(tmp_path / "secret")
    text = tmp_path / "text"
    text.write_text("no certificate")
    loose = make_secret(tmp_path / "loose")
    loose.chmod(0o644)
    short = tmp_path / "short"
    short.write_text("short\n")
    short.chmod(0o600)
    missing = tmp_path / "missing"
    cert, key = ("--tls-cert", str(party.cert)), ("--tls-key", str(party.key))
    cases: list[tuple[tuple[str, ...], list[str]]] = [
        (key, [str(party.key), "without tls_cert"]),
        (cert, [str(party.cert), "without tls_key"]),
        ((*cert, "--tls-key", str(missing)), [str(missing), "cannot be read"]),
        ((*cert, "--tls-key", str(text)), [str(text), "no private key"]),
        (("--tls-cert", str(text), *key), [str(text), "no certificate"]),
        (("--tls-cert", str(other.cert), *key), [str(party.key), "not the key of", str(other.cert)]),
        (("--tls-client-ca", str(party.ca)), [str(party.ca), "without tls_cert"]),
        ((*cert, *key, "--tls-client-ca", str(text)), [str(text), "no certificate"]),
        (("--secret-file", str(missing)), [str(missing), "cannot be read"]),
        (("--secret-file", str(loose)), [str(loose), "0644", "chmod 600"]),
        (("--secret-file", str(short)), [str(short), "5 bytes", "openssl rand"]),
        (("--secret-file", str(tmp_path)), [str(tmp_path), "cannot be read"]),
    ]
    for arguments, words in cases:
        with pytest.raises(InvalidArgument) as refused:
            start_here(tmp_path, *arguments)
        for word in [*words, "To do:"]:
            assert word in str(refused.value), (arguments, str(refused.value))
    result = run_cli("server", "--data-dir", str(tmp_path / "d"), "--listen", "127.0.0.1:0", *cases[0][0])
    assert result.returncode == 1
    assert str(party.key) in result.stderr
    assert "Traceback" not in result.stderr
    assert secret.read_text().strip() not in result.stderr


def start_here(directory: Path, *arguments: str) -> None:
    """What a server does first, in this process."""
    names = [name.removeprefix("--").replace("-", "_") for name in arguments[::2]]
    given = dict(zip(names, arguments[1::2], strict=True))
    load_security(parse_options(ServerOptions, {"data_dir": str(directory), **given}))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tls_cert": "CERT"}, "without tls_ca"),
        ({"tls_ca": "CERT", "tls_key": "KEY"}, "without tls_cert"),
        ({"tls_ca": "/no/such/file"}, "tls_ca /no/such/file cannot be read"),
        ({"token": "t", "secret_file": "SECRET"}, "both secret_file and token"),
        ({"token_file": "KEY"}, "holds no token"),
        ({"token": "a b"}, "option token or token_file holds no token"),
    ],
)
def test_wrong_credentials_of_a_program_are_named_when_the_plugin_opens(
    tmp_path: Path, options: dict[str, str], words: str
) -> None:
    party, secret = make_party(tmp_path / "a"), make_secret(tmp_path / "secret")
    party.key.chmod(0o600)
    files = {"CERT": str(party.cert), "KEY": str(party.key), "SECRET": str(secret)}
    with pytest.raises(InvalidArgument, match=words):
        RemoteShuffle({name: files.get(value, value) for name, value in options.items()})


def test_a_server_open_to_other_machines_says_once_what_that_means(tmp_path: Path) -> None:
    secret = make_secret(tmp_path / "secret")
    for i, (arguments, words) in enumerate(
        [((), "without --secret-file"), (("--secret-file", str(secret)), "without --tls-cert")]
    ):
        log = tmp_path / f"log-{i}"
        server = ServerProcess(tmp_path / f"data-{i}", log, ["--data-listen", "0.0.0.0:0", *arguments])
        server.stop()
        [warning] = [line for line in log.read_text().splitlines() if " WARNING " in line]
        assert f"listening on 0.0.0.0 {words}" in warning
