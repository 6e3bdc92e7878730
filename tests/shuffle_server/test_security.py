"""Tokens at a real server process: who is let in by which verb, and what it tells."""

from __future__ import annotations

import json
import pickle
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from shuffle_api.errors import (
    ErrorCode,
    PermissionDenied,
    Unauthenticated,
)
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.master.auth import APP_OF, FOR_ANY_TOKEN, FOR_OWN_APP, FOR_THE_CLUSTER
from shuffle_transport.connect import flight_connection, flight_options, grpc_channel
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Credentials, Keyring
from shuffle_transport.tokens import app_token, cluster_token
from tests.shuffle_server.helpers import read_all, write_map
from tests.shuffle_server.secured import ABOUT_AN_APP, CONTROL, DATA, NOT_OFFERED, VERBS, Secured, do_put, key, refusal
from tests.shuffle_server.test_server import run_cli

WRONG = Keyring(secrets=(bytes(32),))
A_KEY = pb.ShuffleKey(app="A", shuffle=1)


def test_the_verbs_are_all_the_verbs_there_are() -> None:
    [service] = pb.DESCRIPTOR.services_by_name.values()
    assert sorted([*CONTROL, *FOR_THE_CLUSTER]) == sorted(method.name for method in service.methods)
    assert sorted([*APP_OF, FOR_ANY_TOKEN, FOR_OWN_APP]) == sorted(CONTROL)
    assert len(DATA | NOT_OFFERED) == 9


def test_the_events_of_the_cluster_are_for_its_token(secured: Secured) -> None:
    with closing(secured.control(secured.keys.for_app("A"))) as control:
        with pytest.raises(PermissionDenied, match="cluster's token only"):
            control.call("Events", pb.EventsRequest())
    with closing(secured.control(secured.keys.for_cluster())) as control:
        assert control.call("Events", pb.EventsRequest()).events


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


@pytest.mark.parametrize("app", ["A", "A~B"])
@pytest.mark.parametrize("verb", ABOUT_AN_APP)
def test_another_applications_token_is_denied(secured: Secured, verb: str, app: str) -> None:
    code, text = refusal(verb, secured, secured.keys.for_app("B"), app)
    # Arrow's Python server answers every exception of this one method with UNKNOWN; the text is ours all the same.
    assert code is (None if verb == "GetSchema" else ErrorCode.PERMISSION_DENIED)
    assert "token of application 'B'" in text
    assert secured.keys.for_app("B").token not in text


@pytest.mark.parametrize("whose", ["the application's", "the cluster's"])
@pytest.mark.parametrize("verb", VERBS)
def test_the_right_token_gets_as_far_as_without_tokens(secured: Secured, verb: str, whose: str) -> None:
    app = f"app-{verb}-{whose[4:7]}~run"  # unregistering must not harm the other tests
    credentials = secured.keys.for_app(app) if whose == "the application's" else secured.keys.for_cluster()
    with closing(secured.control(credentials)) as control:
        control.call("RegisterApp", pb.RegisterAppRequest(app=app, instance="i"))
        request = pb.RegisterShuffleRequest(shuffle=key(app), partitions=2, maps=1, codec="lz4", content="spark")
        control.call("RegisterShuffle", request)
        if verb == "DoGet":
            do_put(secured, credentials, app)
        if verb in NOT_OFFERED:
            code, text = refusal(verb, secured, credentials, app)
            assert code in (None, ErrorCode.PERMISSION_DENIED)
            refusals = (
                "NotImplemented",
                "for the cluster's token and those of its workers only",
                "unknown action",
                "authentication mechanism",
            )
            assert any(words in text for words in refusals)
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
    with grpc_channel(secured.server.control, secured.keys.tls) as channel:
        for path in ("/flight_shuffle.v1.ShuffleControl/Nothing", "/other.Service/Do"):
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(path, bytes, bytes)(b"", timeout=60)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_the_flight_method_that_python_has_no_name_for_is_refused_as_well(secured: Secured) -> None:
    with grpc_channel(secured.server.data, secured.keys.tls) as channel:
        call = channel.unary_unary("/arrow.flight.protocol.FlightService/PollFlightInfo", bytes, bytes)
        with pytest.raises(grpc.RpcError) as refused:
            call(b"", timeout=60)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


# ------------------------------------------------------------------ programs that use the plugin


def test_tasks_with_their_applications_token_shuffle_and_the_handle_carries_none(secured: Secured) -> None:
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
