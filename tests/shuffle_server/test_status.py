"""`flight-shuffle status`: tables and JSON of a real server, and the error when there is none."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from bench.harness.server import ServerProcess
from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import MapAttempt, name_of
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server import __version__
from shuffle_server.cli.output import plain
from shuffle_server.cli.status import WIDEST, driver_cells, render
from shuffle_server.cli.top import Rates, view
from shuffle_server.server import MasterServer
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import write_map
from tests.shuffle_server.test_server import run_cli


def status(*arguments: str) -> Any:
    done = run_cli("status", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_json_says_what_the_server_holds_and_does(server: ServerProcess, plugin: RemoteShuffle) -> None:
    with plugin.master("app") as master:
        handle = master.register_shuffle(8, 2)
        written = write_map(plugin, handle, 0)
        with plugin.writer(handle, MapAttempt(1, 0)) as half:
            half.write(0, os.urandom(9 << 20))  # large enough to be on its way to the server
            shown = status(server.control)
        [output] = master.map_outputs(handle)
    [shuffle] = shown["shuffles"]
    id = handle.spec.id
    assert shuffle["shuffle"] == {"app": id.app, "shuffle": id.shuffle, "generation": id.generation}
    assert (shuffle["partitions"], shuffle["maps"], shuffle["committed"]) == (8, 2, 1)
    assert (shuffle["totals"]["records"], shuffle["totals"]["bytes"]) == (len(written), output.totals.bytes)
    [app] = shown["apps"]
    assert (app["app"], app["shuffles"], app["bytes"]) == (id.app, 1, output.totals.bytes)
    [worker], [state] = shown["workers"], shown["states"]
    assert state["worker"] == worker["id"]
    assert f"{worker['host']}:{worker['port']}" == server.data
    assert (state["memory_budget"], state["memory_used"], state["waiting_streams"]) == (1 << 30, 0, 0)
    assert state["staged_outputs"] == 1
    assert state["staged_bytes"] > 9 << 20
    assert shown["bytes_pushed"] == output.totals.bytes + state["staged_bytes"]
    [disk] = state["disks"]
    assert disk["path"] == str(server.data_dir / "worker")
    assert 0 < disk["free"] <= disk["size"]


def sizes_out(shown: str) -> list[str]:
    """The lines about disks, without what is free there: others use them too."""
    return [re.sub(r"[\d.]+ [KMGT]iB", "", line) for line in shown.splitlines()[5:8]]


def test_tables_show_workers_disks_applications_and_shuffles(server: ServerProcess, plugin: RemoteShuffle) -> None:
    with plugin.master("app") as master:
        handle = master.register_shuffle(8, 2)
        write_map(plugin, handle, 0)
        shown = run_cli("status", server.control).stdout
        again = run_cli("status", "--server", server.control).stdout
        assert sizes_out(again) == sizes_out(shown) != []
        assert shown.splitlines()[3].split()[-1] == __version__
    for text in (
        "WORKER",
        "MEMORY IN USE",
        "0 B of 1.0 GiB",
        "DIRECTORY",
        str(server.data_dir),
        str(handle.spec.id),
        server.data,
        "RELEASE",
    ):
        assert text in shown
    assert run_cli("status", server.control).stdout.count("(none)") == 2  # the application has ended


def test_only_one_application_is_shown_when_it_is_named(server: ServerProcess, plugin: RemoteShuffle) -> None:
    with plugin.master("one") as one, plugin.master("two") as two:
        one.register_shuffle(1, 1)
        two.register_shuffle(1, 1)
        shown = status(server.control, "--app", "one")
        assert [name_of(app["app"]) for app in shown["apps"]] == ["one"]
        [run] = {shuffle["shuffle"]["app"] for shuffle in shown["shuffles"]}
        assert status(server.control, "--app", run)["shuffles"] == shown["shuffles"]
        for absent in (("status", "--app", "on"), ("shuffles", "on"), ("scrub", "--app", "on")):
            refused = run_cli(*absent, "--server", server.control)
            assert (refused.returncode, refused.stdout) == (1, "")
            assert "no application 'on' is registered. To do: flight-shuffle status" in refused.stderr


def test_an_unreachable_server_is_named_with_what_to_check() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    failed = run_cli("status", address, "--timeout", "10")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert f"nobody answers at {address}" in failed.stderr
    assert "To do: check that the service runs" in failed.stderr
    assert len(failed.stderr.splitlines()) == 1


def test_a_server_that_does_not_answer_is_named_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        failed = run_cli("status", address, "--timeout", "1")
    assert failed.returncode == 1
    assert address in failed.stderr
    assert "Traceback" not in failed.stderr


def test_another_endpoint_is_told_from_the_control_endpoint(server: ServerProcess) -> None:
    failed = run_cli("status", server.data)
    assert failed.returncode == 1
    assert "does not answer as a Flight Shuffle control endpoint" in failed.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "address is missing"),
        (["a:1", "--server", "b:2"], "two addresses"),
        (["nowhere"], "'nowhere' is not HOST:PORT"),
        (["--server", "a:1,nowhere"], "'nowhere' is not HOST:PORT"),
    ],
)
def test_a_wrong_address_is_named_with_what_would_be_right(arguments: list[str], words: str) -> None:
    failed = run_cli("status", *arguments)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert words in failed.stderr
    assert "ready line" in failed.stderr


def test_a_worker_that_told_nothing_has_dashes_and_names_cannot_play_with_the_terminal() -> None:
    reply = pb.StatusReply(
        workers=[pb.Worker(id="w", host="h", port=1)], apps=[pb.AppStatus(app="a", name="\x1b[2Jx\n")]
    )
    shown = render(reply)
    assert shown.splitlines()[3].split()[-7:] == ["-"] * 7
    assert "\x1b" not in shown
    assert "[2Jx" in shown


def test_the_driver_of_an_application_is_shown_again_after_a_restart(
    server: ServerProcess, plugin: RemoteShuffle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "annabel")
    before = time.time()
    with plugin.master("app") as master:
        [app] = status(server.control)["apps"]
        driver = app["driver"]
        assert (driver["user"], driver["host"]) == ("annabel", socket.gethostname())
        assert before <= driver["began"] <= time.time()
        server.kill()
        server.restart()
        [app] = status(server.control)["apps"]
        assert app["driver"] == {"user": "", "host": "", "began": 0.0}
        master._heartbeat()
        [app] = status(server.control)["apps"]
        assert app["driver"] == driver
        assert f"annabel  {driver['host']}" in run_cli("status", server.control).stdout


@pytest.fixture
def control(master: MasterServer) -> Iterator[ControlClient]:
    with closing(ControlClient(master.control_address, client="test")) as client:
        yield client


ANN = pb.Driver(user="ann", host="edge-7", began=7.5)


def register(control: ControlClient, app: str, driver: pb.Driver | None) -> pb.StatusReply:
    control.call("RegisterApp", pb.RegisterAppRequest(app=app, instance="i", driver=driver))
    reply: pb.StatusReply = control.call("Status", pb.StatusRequest(app=app))
    return reply


def test_a_client_that_sends_no_driver_has_dashes_or_the_one_that_it_sent_before(control: ControlClient) -> None:
    [app] = register(control, "old~1", None).apps
    assert not app.HasField("driver")
    assert driver_cells(app) == ("-", "-", "-")
    [app] = register(control, "new~1", ANN).apps
    assert app.driver == ANN
    assert register(control, "new~1", None).apps[0].driver == ANN
    register(control, "half~1", pb.Driver(user="a\nb"))
    texts = [event.text for event in control.call("Events", pb.EventsRequest()).events]
    assert texts[-3:] == ["old~1", "new~1 of ann@edge-7", "half~1 of a\N{REPLACEMENT CHARACTER}b@-"]


def test_a_driver_is_forgotten_with_its_application(control: ControlClient) -> None:
    register(control, "app~1", ANN)
    control.call("UnregisterApp", pb.UnregisterAppRequest(app="app~1"))
    assert not register(control, "app~1", None).apps[0].HasField("driver")


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        (pb.Driver(user="x" * 1001), "user has 1001 characters"),
        (pb.Driver(host="x" * 1001), "host has 1001 characters"),
        (pb.Driver(began=float("nan")), "began=nan is out of range"),
        (pb.Driver(began=-1.0), "began=-1.0 is out of range"),
        (pb.Driver(began=1e12), "out of range"),
    ],
)
def test_a_driver_that_cannot_be_shown_is_refused(control: ControlClient, driver: pb.Driver, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        register(control, "bad~1", driver)
    register(control, "app~1", None)
    with pytest.raises(InvalidArgument, match=words):
        control.call("Heartbeat", pb.HeartbeatRequest(app="app~1", driver=driver))


def test_the_names_of_a_driver_keep_the_tables_narrow_and_the_terminal_as_it_is() -> None:
    driver = pb.Driver(user="\x1b[2Jx\n", host="h" * 1000, began=time.time() - 7200)
    reply = pb.StatusReply(apps=[pb.AppStatus(app="a", driver=driver)])
    for shown in (render(reply), view(reply, Rates({}), 1)):
        [row] = [line for line in shown.splitlines() if line.startswith("a  ")]
        assert f"[2Jx\N{REPLACEMENT CHARACTER}  {'h' * (WIDEST - 1)}…  2 h ago" in row
        assert "\x1b" not in row


def test_large_numbers_are_numbers() -> None:
    shown = {"path": "/d", "size": 1 << 60, "used": 0, "free": 0, "out": "", "device": "", "seek_bytes": 0}
    assert plain(pb.DiskStatus(path="/d", size=1 << 60)) == shown
