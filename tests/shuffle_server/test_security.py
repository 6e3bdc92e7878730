"""Tokens and TLS against real server processes: who is let in by which verb, and what others see on the wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
import trustme

from bench.server import ServerProcess
from shuffle_api.errors import (
    ErrorCode,
    InvalidArgument,
    PermissionDenied,
    ProtocolMismatch,
    ServerUnreachable,
    ShuffleError,
    Unauthenticated,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.interfaces import OptionValue
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.master.auth import APP_OF, FOR_ANY_TOKEN, FOR_OWN_APP
from shuffle_transport.blocks import PUT_SCHEMA, Block, table_rows, totals_of
from shuffle_transport.checksum import crc32c
from shuffle_transport.connect import flight_connection, flight_options
from shuffle_transport.control_client import ControlClient
from shuffle_transport.credential_files import load_keyring
from shuffle_transport.flight_client import FlightClient, PushTarget
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Credentials, Keyring, app_token, cluster_token
from tests.certificates import Party, make_party, make_secret
from tests.shuffle_server.helpers import read_all, write_map
from tests.shuffle_server.proxy import RecordingProxy
from tests.shuffle_server.test_server import run_cli

WRONG = Keyring(secret=bytes(32))
MARK = b"nobody but the reducers may read this, whatever wire it takes"


@dataclass(frozen=True, slots=True)
class Secured:
    """A server with a secret and TLS, in which applications A and B have a committed shuffle each, number 1."""

    server: ServerProcess
    keys: Keyring
    secret_file: Path
    party: Party

    @property
    def options(self) -> dict[str, OptionValue]:
        return {
            "server": self.server.control,
            "timeout": 20,
            "retry": 2,
            "tls_ca": str(self.party.ca),
            "secret_file": str(self.secret_file),
        }

    def control(self, credentials: Credentials) -> ControlClient:
        return ControlClient(self.server.control, client="test", timeout=20, credentials=credentials)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    root = tmp_path_factory.mktemp("secured")
    party, secret_file = make_party(root / "tls"), make_secret(root / "secret")
    keys = load_keyring(tls_ca=str(party.ca), secret_file=str(secret_file))
    arguments = ["--tls-cert", str(party.cert), "--tls-key", str(party.key), "--secret-file", str(secret_file)]
    arguments += ["--log-level", "debug"]
    with ServerProcess(root / "data", root / "log", arguments, credentials=keys.for_cluster()) as server:
        scene = Secured(server, keys, secret_file, party)
        with RemoteShuffle(scene.options) as plugin, plugin.master("A") as a, plugin.master("B") as b:
            for master in (a, b):
                handle = master.register_shuffle(2, 1, shuffle=1)
                write_map(plugin, handle, 0)
            yield scene


# ------------------------------------------------------------------ every verb, every token

Verb = Callable[[Secured, Credentials, str], Any]
A_KEY = pb.ShuffleKey(app="A", shuffle=1)


def _control(method: str, request: Callable[[str], Any]) -> Verb:
    def call(scene: Secured, credentials: Credentials, app: str) -> Any:
        with closing(scene.control(credentials)) as client:
            return client.call(method, request(app))

    return call


def _flight(action: Callable[[Any, Any, str], Any]) -> Verb:
    def call(scene: Secured, credentials: Credentials, app: str) -> Any:
        with flight_connection(scene.server.data, credentials.tls) as client:
            return action(client, flight_options(credentials, 20), app)

    return call


def _key(app: str) -> pb.ShuffleKey:
    return pb.ShuffleKey(app=app, shuffle=1)


def _path(app: str) -> Any:
    return fl.FlightDescriptor.for_path(app, "1")


def _do_put(scene: Secured, credentials: Credentials, app: str) -> Any:
    target = PushTarget(ShuffleId(app, 1), MapAttempt(0, 9), 2, "lz4")
    with closing(FlightClient(scene.server.data, timeout=20, credentials=credentials)) as client:
        blocks = [Block(0, crc32c(b"x"), 1, 1, b"x")]
        return client.push(target, blocks, first_block=0, end=totals_of(table_rows(blocks)), commit=True)


def _do_exchange(client: Any, options: Any, app: str) -> None:
    writer, reader = client.do_exchange(_path(app), options)
    try:
        writer.begin(PUT_SCHEMA)
        reader.read_chunk()
    finally:
        writer.close()


class _Greeting(fl.ClientAuthHandler):  # type: ignore[misc]  # pyarrow has no types
    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        outgoing.write(b"let me in")
        incoming.read()

    def get_token(self) -> bytes:
        return b""


CONTROL: dict[str, Verb] = {
    "Hello": _control("Hello", lambda app: pb.HelloRequest(protocol=1)),
    "RegisterApp": _control("RegisterApp", lambda app: pb.RegisterAppRequest(app=f"{app}", instance="i")),
    "Heartbeat": _control("Heartbeat", lambda app: pb.HeartbeatRequest(app=app)),
    "UnregisterApp": _control("UnregisterApp", lambda app: pb.UnregisterAppRequest(app=app)),
    "RegisterShuffle": _control(
        "RegisterShuffle",
        lambda app: pb.RegisterShuffleRequest(
            shuffle=pb.ShuffleKey(app=app, shuffle=9), partitions=1, maps=1, codec="lz4", content="spark"
        ),
    ),
    "UnregisterShuffle": _control("UnregisterShuffle", lambda app: pb.UnregisterShuffleRequest(shuffle=_key(app))),
    "Locate": _control("Locate", lambda app: pb.LocateRequest(shuffle=_key(app))),
    "ReportLost": _control("ReportLost", lambda app: pb.ReportLostRequest(shuffle=_key(app), reason="test")),
    "Status": _control("Status", lambda app: pb.StatusRequest(app=app)),
}
DATA: dict[str, Verb] = {
    "DoPut": _do_put,
    "DoGet": _flight(
        lambda client, options, app: client.do_get(
            fl.Ticket(pb.GetTicket(shuffle=_key(app), end_partition=2).SerializeToString()), options
        ).read_all()
    ),
    "GetFlightInfo": _flight(lambda client, options, app: client.get_flight_info(_path(app), options)),
    "GetSchema": _flight(lambda client, options, app: client.get_schema(_path(app), options)),
    "ListFlights": _flight(lambda client, options, app: list(client.list_flights(app.encode(), options))),
}
# Verbs that this server does not offer: refused all the same before that is said.
NOT_OFFERED: dict[str, Verb] = {
    "DoExchange": _flight(_do_exchange),
    "DoAction": _flight(lambda client, options, app: list(client.do_action(fl.Action("x", b""), options))),
    "ListActions": _flight(lambda client, options, app: list(client.list_actions(options))),
    "Handshake": _flight(lambda client, options, app: client.authenticate(_Greeting(), options)),
}
VERBS = CONTROL | DATA | NOT_OFFERED
ABOUT_AN_APP = [name for name in VERBS if name not in {"Hello", *NOT_OFFERED}]


def code_of(error: BaseException) -> ErrorCode | None:
    """The error code behind an exception of ours or of Flight's, None if it has none."""
    if isinstance(error, ShuffleError):
        return error.code
    if isinstance(error, fl.FlightUnauthenticatedError) or "Detail: Unauthenticated" in str(error):
        return ErrorCode.UNAUTHENTICATED
    if isinstance(error, fl.FlightUnauthorizedError) or "Detail: Unauthorized" in str(error):
        return ErrorCode.PERMISSION_DENIED
    return None


def refusal(verb: str, scene: Secured, credentials: Credentials, app: str = "A") -> tuple[ErrorCode | None, str]:
    with pytest.raises((ShuffleError, pa.ArrowException, OSError, NotImplementedError)) as caught:
        VERBS[verb](scene, credentials, app)
    return code_of(caught.value), str(caught.value)


def test_the_verbs_are_all_the_verbs_there_are() -> None:
    [service] = pb.DESCRIPTOR.services_by_name.values()
    assert sorted(CONTROL) == sorted(method.name for method in service.methods)
    assert sorted([*APP_OF, FOR_ANY_TOKEN, FOR_OWN_APP]) == sorted(CONTROL)
    assert len(DATA | NOT_OFFERED) == 9


@pytest.mark.parametrize("verb", VERBS)
def test_without_a_token_every_verb_is_refused(secured: Secured, verb: str) -> None:
    code, text = refusal(verb, secured, Credentials(tls=secured.keys.tls))
    assert code is ErrorCode.UNAUTHENTICATED
    assert "without a token" in text


@pytest.mark.parametrize("verb", VERBS)
def test_with_a_wrong_token_every_verb_is_refused(secured: Secured, verb: str) -> None:
    wrong = [
        replace(WRONG.for_app("A"), tls=secured.keys.tls),
        replace(WRONG.for_cluster(), tls=secured.keys.tls),
        replace(secured.keys.for_app("B"), app="A"),  # right for another application than it says
        replace(secured.keys.for_app("A"), app=""),
    ]
    for credentials in wrong:
        code, text = refusal(verb, secured, credentials)
        assert code is ErrorCode.UNAUTHENTICATED
        assert credentials.token not in text


@pytest.mark.parametrize("verb", ABOUT_AN_APP)
def test_another_applications_token_is_denied(secured: Secured, verb: str) -> None:
    code, text = refusal(verb, secured, secured.keys.for_app("B"), "A")
    # Arrow's Python server answers every exception of this one method with UNKNOWN; the text is ours all the same.
    assert code is (None if verb == "GetSchema" else ErrorCode.PERMISSION_DENIED)
    assert "token of application 'B'" in text
    assert secured.keys.for_app("B").token not in text


@pytest.mark.parametrize("whose", ["the application's", "the cluster's"])
@pytest.mark.parametrize("verb", VERBS)
def test_the_right_token_gets_as_far_as_without_tokens(secured: Secured, verb: str, whose: str) -> None:
    app = f"app-{verb}-{whose[4:7]}"  # unregistering must not harm the other tests
    credentials = secured.keys.for_app(app) if whose == "the application's" else secured.keys.for_cluster()
    with closing(secured.control(credentials)) as control:
        control.call("RegisterApp", pb.RegisterAppRequest(app=app, instance="i"))
        request = pb.RegisterShuffleRequest(shuffle=_key(app), partitions=2, maps=1, codec="lz4", content="spark")
        control.call("RegisterShuffle", request)
        if verb == "DoGet":
            _do_put(secured, credentials, app)
        if verb in NOT_OFFERED:
            code, text = refusal(verb, secured, credentials, app)
            assert code is None
            assert "NotImplemented" in text or "does not have an authentication mechanism" in text
        else:
            VERBS[verb](secured, credentials, app)
        control.call("UnregisterApp", pb.UnregisterAppRequest(app=app))


def test_questions_about_nobody_in_particular_show_an_application_itself_only(secured: Secured) -> None:
    with closing(secured.control(secured.keys.for_app("A"))) as control:
        own: pb.StatusReply = control.call("Status", pb.StatusRequest())
    with closing(secured.control(secured.keys.for_cluster())) as control:
        everything: pb.StatusReply = control.call("Status", pb.StatusRequest())
    assert [app.app for app in own.apps] == ["A"]
    assert {s.shuffle.app for s in own.shuffles} == {"A"}
    assert {"A", "B"} <= {app.app for app in everything.apps}
    with flight_connection(secured.server.data, secured.keys.tls) as client:
        own_flights = list(client.list_flights(b"", flight_options(secured.keys.for_app("A"), 20)))
        flights = list(client.list_flights(b"", flight_options(secured.keys.for_cluster(), 20)))
    assert [f.descriptor.path for f in own_flights] == [[b"A", b"1"]]
    assert {(b"A", b"1"), (b"B", b"1")} <= {tuple(f.descriptor.path) for f in flights}


def test_an_unknown_method_and_an_unknown_service_are_refused_alike(secured: Secured) -> None:
    import grpc

    from shuffle_transport.connect import grpc_channel

    with grpc_channel(secured.server.control, secured.keys.tls) as channel:
        for path in ("/flight_shuffle.v1.ShuffleControl/Nothing", "/other.Service/Do"):
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(path, bytes, bytes)(b"", timeout=20)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


# ------------------------------------------------------------------ programs that use the plugin


def test_tasks_with_their_applications_token_shuffle_and_the_handle_carries_none(secured: Secured) -> None:
    import pickle

    token = secured.keys.for_app("job").token
    task = {k: v for k, v in secured.options.items() if k != "secret_file"} | {"token": token}
    with RemoteShuffle(secured.options) as driver, driver.master("job") as master, RemoteShuffle(task) as tasks:
        handle = master.register_shuffle(4, 2)
        assert token.encode() not in pickle.dumps(handle)
        written = write_map(tasks, handle, 0) + write_map(tasks, handle, 1)
        assert read_all(tasks, handle) == sorted(written)
        assert token not in repr(tasks.__dict__)
        with pytest.raises(PermissionDenied, match="'B'|'job'"):
            with closing(secured.control(secured.keys.for_app("job"))) as control:
                control.call("Locate", pb.LocateRequest(shuffle=A_KEY))


def test_a_task_of_another_application_cannot_read_or_write(secured: Secured, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(secured.keys.for_app("B").token + "\n")
    token_file.chmod(0o600)
    options = {k: v for k, v in secured.options.items() if k != "secret_file"} | {"token_file": str(token_file)}
    with RemoteShuffle(secured.options) as driver, driver.master("mine") as master, RemoteShuffle(options) as stranger:
        handle = master.register_shuffle(2, 1)
        with pytest.raises(Unauthenticated, match="not that of application 'mine'"):
            read_all(stranger, handle)
        with pytest.raises(Unauthenticated, match="not that of application 'mine'"):
            write_map(stranger, handle, 0)
        assert master.map_outputs(handle) == []


def test_status_and_token_commands_work_with_files(secured: Secured, tmp_path: Path) -> None:
    where = ["status", "--json", "--server", secured.server.control, "--tls-ca", str(secured.party.ca)]
    everything = run_cli(*where, "--secret-file", str(secured.secret_file))
    assert {"A", "B"} <= {app["app"] for app in json.loads(everything.stdout)["apps"]}
    made = run_cli("token", "--secret-file", str(secured.secret_file), "--app", "A")
    assert made.stdout == secured.keys.for_app("A").token + "\n"
    (tmp_path / "token").write_text(made.stdout)
    (tmp_path / "token").chmod(0o600)
    own = run_cli(*where, "--app", "A", "--token-file", str(tmp_path / "token"))
    assert [app["app"] for app in json.loads(own.stdout)["apps"]] == ["A"]
    refused = run_cli(*where, "--app", "B", "--token-file", str(tmp_path / "token"))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "not that of application 'B'" in refused.stderr
    assert made.stdout.strip() not in refused.stderr
    cluster = run_cli("token", "--secret-file", str(secured.secret_file), "--cluster")
    assert cluster.stdout == secured.keys.for_cluster().token + "\n"


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
        client = ControlClient(server.control, client="test", timeout=20, credentials=keys.for_cluster())
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
        base: dict[str, OptionValue] = {"server": server.control, "timeout": 20, "retry": 0, "tls_ca": str(own.ca)}
        right = base | {"tls_cert": str(client.cert), "tls_key": str(client.key)}
        with RemoteShuffle(right) as plugin, plugin.master("app") as master:
            handle = master.register_shuffle(2, 1)
            written = write_map(plugin, handle, 0)
            assert read_all(plugin, handle) == written
        for wrong in (base, base | {"tls_cert": str(stranger.cert), "tls_key": str(stranger.key)}):
            with RemoteShuffle(wrong) as plugin, pytest.raises(ServerUnreachable, match=rf"{server.control}.*tls_cert"):
                plugin.master("app")
            keys = load_keyring(**{name: str(value) for name, value in wrong.items() if name.startswith("tls_")})
            data = FlightClient(server.data, timeout=20, credentials=keys.for_app("app"))
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
            client = ControlClient(control.address, client="test", timeout=20, credentials=credentials)
            with closing(client):
                client.call("RegisterApp", pb.RegisterAppRequest(app="app", instance="i"))
                key = pb.ShuffleKey(app="app", shuffle=1)
                client.call(
                    "RegisterShuffle",
                    pb.RegisterShuffleRequest(shuffle=key, partitions=1, maps=1, codec="none", content="opaque"),
                )
            flight = FlightClient(data.address, timeout=20, credentials=credentials)
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
    from shuffle_api.options import parse_options
    from shuffle_server.options import ServerOptions
    from shuffle_server.security import load_security

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
        ({"token": "a b"}, "token holds no token"),
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


def test_no_token_and_no_secret_is_in_the_servers_log(secured: Secured) -> None:
    """Runs last in this module: after every refusal above, at log level debug."""
    with closing(secured.control(replace(WRONG.for_app("A"), tls=secured.keys.tls))) as control:
        with pytest.raises(Unauthenticated):
            control.hello()
    log = secured.server.log.read_text()
    assert "committed map 0" in log
    secret = secured.secret_file.read_text().strip()
    hidden = [secret, cluster_token(secret.encode()), WRONG.for_app("A").token, WRONG.for_cluster().token]
    hidden += [app_token(secret.encode(), app) for app in ("A", "B", "job", "mine")]
    assert [text for text in hidden if text[:16] in log] == []
