"""Two registries that share workers, in this process: where applications go, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from bench.harness.cluster import wait_until
from bench.harness.server import lasting_addresses
from bench.shared_workers import NAMES, app_of, listed
from shuffle_api.errors import InvalidArgument, UnknownApp, WrongMaster
from shuffle_api.ids import name_of, registry_of
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.master.registries import Registries
from shuffle_server.options import ServerOptions, check_options
from shuffle_server.registry_names import home
from shuffle_server.server import MasterServer, WorkerServer
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import output_files, read_all, write_map

TIMES: dict[str, Any] = {"timeout": 120, "retry": 120, "hand_over": "off"}


class Shared:
    """Two masters, and workers that join both unless the test says otherwise. Closed at the end."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.addresses = dict(zip(NAMES, lasting_addresses(2), strict=True))
        self.listed = listed(self.addresses)
        self.stack = ExitStack()
        self.stopped: list[MasterServer] = []
        self.masters = {name: self.start_master(name) for name in NAMES}
        self._started = 0

    def start_master(self, name: str, **options: str) -> MasterServer:
        given = {"data_dir": str(self.root / name), "listen": self.addresses[name], "registry": name}
        server = MasterServer(ServerOptions(**(given | {"masters": self.listed} | options)))  # type: ignore[arg-type]
        self.stack.callback(lambda: server.stop() if server not in self.stopped else None)
        return server

    def stop_master(self, name: str) -> None:
        self.masters[name].stop()
        self.stopped.append(self.masters[name])

    def start_worker(self, directory: str, master: str = "") -> WorkerServer:
        options = ServerOptions(
            data_dir=str(self.root / directory), master=master or self.listed, data_listen="127.0.0.1:0", recycle=0
        )
        return WorkerServer(options)

    def worker(self, directory: str = "w", master: str = "") -> WorkerServer:
        server = self.start_worker(directory, master)
        self.stack.callback(server.stop)
        return server


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    scene = Shared(tmp_path)
    with scene.stack:
        yield scene


@pytest.fixture
def plugin(shared: Shared) -> Iterator[RemoteShuffle]:
    """It is given the master of registry a, whatever it shuffles."""
    with RemoteShuffle({"server": shared.addresses["a"], **TIMES}) as remote:
        yield remote


def runs(server: str) -> set[str]:
    with closing(ControlClient(server, client="test")) as client:
        return {app.app for app in client.call("Status", pb.StatusRequest()).apps}


@pytest.mark.parametrize("registry", NAMES)
def test_a_client_may_ask_any_master_and_its_application_goes_to_its_own(
    shared: Shared, plugin: RemoteShuffle, registry: str
) -> None:
    workers = [shared.worker("w1"), shared.worker("w2")]
    with plugin.master(app_of(registry)) as master:
        handle = master.register_shuffle(4, 6)
        assert (name_of(master.run), registry_of(master.run)) == (app_of(registry), registry)
        assert handle.endpoint == shared.addresses[registry]
        assert {name: runs(address) for name, address in shared.addresses.items()} == {
            name: {master.run} if name == registry else set() for name in NAMES
        }
        expected = [record for n in range(6) for record in write_map(plugin, handle, n)]
        assert read_all(plugin, handle) == sorted(expected)
        assert {output.worker for output in master.map_outputs(handle)} <= {each.worker.info.id for each in workers}
        with RemoteShuffle(TIMES) as tasks:  # of another process, which has the handle
            assert read_all(tasks, handle) == sorted(expected)
    wait_until(lambda: not output_files(shared.root / "w1"), "the files are gone")
    wait_until(lambda: not output_files(shared.root / "w2"), "the files are gone")


def test_each_registry_sees_the_room_and_the_load_that_the_worker_has_whoever_uses_it(
    shared: Shared, plugin: RemoteShuffle
) -> None:
    worker = shared.worker()
    with plugin.master(app_of("b")) as master:
        handle = master.register_shuffle(4, 1)
        write_map(plugin, handle, 0)
        for each in worker._registries.all:
            each.session._task.wake()
        for address in shared.addresses.values():
            with closing(ControlClient(address, client="test")) as client:

                def pushed(client: ControlClient = client) -> bool:
                    [state] = client.call("Status", pb.StatusRequest()).states or [pb.WorkerStatus()]
                    return bool(state.bytes_pushed)

                wait_until(pushed, "both masters have the worker's figures")


def test_a_request_at_the_wrong_master_is_refused_with_the_addresses_of_the_right_one(
    shared: Shared, plugin: RemoteShuffle
) -> None:
    with plugin.master(app_of("b")) as master, closing(ControlClient(shared.addresses["a"], client="t")) as client:
        heartbeat = pb.HeartbeatRequest(app=master.run)
        with pytest.raises(WrongMaster, match=f"application '{master.run}' belongs to registry 'b'") as refused:
            shared.masters["a"]._control._registries.check("Heartbeat", heartbeat)
        assert refused.value.masters == shared.addresses["b"]
        client.call("Heartbeat", heartbeat)  # it goes where it is sent
        assert client.address == shared.addresses["b"]
        with pytest.raises(UnknownApp):  # and from there back
            client.call("Heartbeat", pb.HeartbeatRequest(app="nobody~1~a"))
        assert client.address == shared.addresses["a"]
        with pytest.raises(InvalidArgument, match="is of registry 'c'; the masters here are of registry 'a', reg"):
            client.call("RegisterApp", pb.RegisterAppRequest(app="new~1~c", instance="1"))
        with pytest.raises(InvalidArgument, match="is of the registry without a name"):
            client.call("RegisterApp", pb.RegisterAppRequest(app="new~1", instance="1"))


def test_masters_that_do_not_agree_do_not_send_a_client_to_and_fro_for_ever(tmp_path: Path) -> None:
    one, other = lasting_addresses(2)
    apps = (app for app in map("app-{}".format, range(100)) if home(app, "ab") == "b" and home(app, "ac") == "a")
    app = next(apps)
    with ExitStack() as stack:
        for name, listen, known in (("a", one, {"a": one, "b": other}), ("c", other, {"a": one, "c": other})):
            options = ServerOptions(data_dir=str(tmp_path / name), listen=listen, registry=name, masters=listed(known))
            stack.callback(MasterServer(options).stop)
        plugin = stack.enter_context(RemoteShuffle({"server": one, **TIMES}))
        with pytest.raises(WrongMaster, match="belongs to registry"):
            plugin.master(app)


@pytest.mark.parametrize("meanwhile", ["away", "on an empty directory"])
def test_a_worker_restarts_while_one_master_is_away_and_joins_it_when_it_is_back(
    shared: Shared, plugin: RemoteShuffle, meanwhile: str
) -> None:
    worker = shared.start_worker("w")
    with plugin.master(app_of("a")) as a, plugin.master(app_of("b")) as b:
        handles = [master.register_shuffle(4, 1) for master in (a, b)]
        expected = [write_map(plugin, handle, 0) for handle in handles]
        worker.stop()
        shared.stop_master("b")
        if meanwhile != "away":
            shared.masters["b"] = shared.start_master("b", data_dir=str(shared.root / "empty"))
        worker = shared.worker("w")
        assert worker._registries.counted_on() == {"a": True, "b": False}
        assert worker._registries.absent() == ""
        assert read_all(plugin, handles[0]) == expected[0]
        expected.append(write_map(plugin, more := a.register_shuffle(4, 1), 0))
        assert read_all(plugin, more) == expected[2]
        if meanwhile != "away":
            shared.stop_master("b")
        shared.masters["b"] = shared.start_master("b")
        wait_until(lambda: worker._registries.counted_on()["b"], "registry b is joined")
        assert read_all(plugin, handles[1]) == expected[1]


def test_a_worker_that_knows_one_registry_serves_that_one_and_keeps_what_it_holds_of_the_other(
    shared: Shared, plugin: RemoteShuffle, caplog: pytest.LogCaptureFixture
) -> None:
    worker = shared.start_worker("w")
    with plugin.master(app_of("a")) as a, plugin.master(app_of("b")) as b:
        handles = [master.register_shuffle(4, 1) for master in (a, b)]
        expected = [write_map(plugin, handle, 0) for handle in handles]
        worker.stop()
        worker = shared.start_worker("w", f"a={shared.addresses['a']}")
        assert "this worker does not join registry 'b'" in caplog.text
        assert "1 map outputs are of registry 'b'" in caplog.text
        assert read_all(plugin, handles[0]) == expected[0]
        with pytest.raises(InvalidArgument, match="this worker has joined registry 'a'"):
            worker.worker.spec(handles[1].spec.id)
        worker._registries.all[0].session._heartbeat()
        worker.stop()
        worker = shared.worker("w")
        assert [read_all(plugin, handle) for handle in handles] == expected


def test_a_drained_worker_leaves_both_registries_with_the_data_of_each_elsewhere(
    shared: Shared, plugin: RemoteShuffle
) -> None:
    leaving = shared.worker("leaving")
    left: list[bool] = []
    leaving.when_left(lambda: left.append(True))
    with plugin.master(app_of("a")) as a, plugin.master(app_of("b")) as b:
        handles = [master.register_shuffle(4, 2) for master in (a, b)]
        expected = [sorted([*write_map(plugin, h, 0), *write_map(plugin, h, 1)]) for h in handles]
        staying = shared.worker("staying")
        shared.masters["a"]._control.membership.drain(leaving.worker.info.id)  # one master wants it to leave
        wait_until(lambda: bool(left), "the worker leaves")
        for master, handle in zip((a, b), handles, strict=True):
            assert {output.worker for output in master.map_outputs(handle)} == {staying.worker.info.id}
        assert [read_all(plugin, handle) for handle in handles] == expected


def test_a_worker_that_takes_a_master_for_one_of_another_registry_is_refused(shared: Shared) -> None:
    swapped = listed({"a": shared.addresses["b"], "b": shared.addresses["a"]})
    for master in (swapped, f"a={shared.addresses['b']}", shared.addresses["a"]):
        with pytest.raises(InvalidArgument, match="the worker joins this master as one of .*; it is of registry '."):
            shared.start_worker("w", master)


def test_a_master_does_not_take_the_journal_of_another_registry(shared: Shared, plugin: RemoteShuffle) -> None:
    with plugin.master(app_of("b")):
        shared.stop_master("b")
        with pytest.raises(InvalidArgument, match=f"has application '{app_of('b')}~.*~b', which is of registry 'b'"):
            shared.start_master("b", registry="a", masters="")
        shared.masters["b"] = shared.start_master("b")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"registry": "a", "masters": "b=h:1"}, "does not have registry 'a', which is this master's"),
        ({"masters": "a=h:1,b=h:2"}, "does not have the registry without a name"),
        ({"registry": "a", "masters": "a=h:1,a=h:2"}, "has registry 'a' twice"),
        ({"registry": "a~"}, "'a~' is no name of a registry"),
        ({"master": "a=h:1,b=h:1"}, "gives h:1 to registry 'a' and to 'b'"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_options(ServerOptions(data_dir="d", **options))  # type: ignore[arg-type]
    assert why in str(refused.value)


def test_masters_may_be_given_one_by_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shuffle_server", "worker", "--master", "a=h:1", "--master", "a=h:2"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 2
    assert "--master 'a=h:1,a=h:2' has registry 'a' twice" in done.stderr


def test_a_registry_may_have_a_name_and_be_alone() -> None:
    alone = Registries("a")
    alone.check("Hello", pb.HelloRequest(app="any"))
    alone.check("Heartbeat", pb.HeartbeatRequest(app="any~1~a"))
    with pytest.raises(InvalidArgument, match="is of registry 'b'; the masters here are of registry 'a'"):
        alone.check("Heartbeat", pb.HeartbeatRequest(app="any~1~b"))
    assert json.dumps(alone.messages()) == "[]"
