"""Runs and generations: files of one never become another's, whatever of it comes back, and however late."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from bench.harness.cluster import wait_until
from bench.harness.files import files_below
from bench.harness.server import ServerProcess
from shuffle_api.errors import ShuffleError, UnknownApp, UnknownShuffle
from shuffle_api.ids import MapAttempt, ShuffleId, name_of
from shuffle_api.values import ShuffleHandle, ShuffleSpec
from shuffle_plugins.remote import RemoteShuffle
from shuffle_plugins.remote.master import RemoteMaster
from shuffle_transport import messages
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import read_all, write_map


class Service:
    """A service as one process or as a master and a worker; `worker` is the process that holds the files."""

    def __init__(self, tmp_path: Path, stack: ExitStack, role: str) -> None:
        arguments = ["--app-timeout", "600"]
        if role == "server":
            self.worker = stack.enter_context(ServerProcess(tmp_path / "data", tmp_path / "log", arguments))
            self.control = self.worker.control
            return
        master = ServerProcess(tmp_path / "m", tmp_path / "m.log", arguments, role="master")
        stack.enter_context(master)
        self.control = master.control
        arguments = ["--master", self.control, "--data-listen", "127.0.0.1:0"]
        self.worker = stack.enter_context(
            ServerProcess(tmp_path / "data", tmp_path / "w.log", arguments, role="worker")
        )


@pytest.fixture(params=["server", "master and worker"])
def service(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    with ExitStack() as stack:
        yield Service(tmp_path, stack, request.param)


@pytest.fixture
def plugin(service: Service) -> Iterator[RemoteShuffle]:
    with RemoteShuffle({"server": service.control, "hand_over": "off", "timeout": 60, "retry": 60}) as remote:
        yield remote


def apps_of(server: ServerProcess) -> Path:
    return server.data_dir / "worker" / "apps"


def outputs_below(directory: Path) -> list[Path]:
    return [path for path in files_below(directory) if path.suffix == ".out"]


def of_the_next_run(first: RemoteMaster, handle: ShuffleHandle, plugin: RemoteShuffle) -> tuple[RemoteMaster, int]:
    first.close()
    return plugin.master(name_of(first.run)), handle.spec.id.shuffle


def of_the_next_generation(
    first: RemoteMaster, handle: ShuffleHandle, plugin: RemoteShuffle
) -> tuple[RemoteMaster, int]:
    first.unregister_shuffle(handle)
    return first, handle.spec.id.shuffle


Next = Callable[[RemoteMaster, ShuffleHandle, RemoteShuffle], tuple[RemoteMaster, int]]
NEXT = [of_the_next_run, of_the_next_generation]


@pytest.mark.parametrize("following", NEXT)
def test_files_that_could_not_be_deleted_are_not_those_of_the_shuffle_that_has_the_name_next(
    service: Service, plugin: RemoteShuffle, tmp_path: Path, following: Next
) -> None:
    first = plugin.master("nightly")
    handle = first.register_shuffle(4, 3)
    for map_id in range(3):
        write_map(plugin, handle, map_id)
    shutil.copytree(apps_of(service.worker), tmp_path / "kept")
    master, number = following(first, handle, plugin)
    again = master.register_shuffle(4, 3, shuffle=number)
    written = write_map(plugin, again, 0, attempt=5)
    service.worker.kill()
    shutil.copytree(tmp_path / "kept", apps_of(service.worker), dirs_exist_ok=True)
    service.worker.restart()
    assert [output.output for output in master.map_outputs(again)] == [MapAttempt(0, 5)]
    for map_id in (1, 2):
        written += write_map(plugin, again, map_id, attempt=5)
    assert read_all(plugin, again) == sorted(written)
    wait_until(lambda: len(outputs_below(apps_of(service.worker))) == 3, "the files of the first one are deleted")


@pytest.mark.parametrize("following", NEXT)
def test_folder_under_the_name_of_the_next_shuffle_is_not_adopted(
    service: Service, plugin: RemoteShuffle, tmp_path: Path, following: Next
) -> None:
    first = plugin.master("nightly")
    handle = first.register_shuffle(4, 1)
    write_map(plugin, handle, 0)
    [folder] = {path.parent for path in outputs_below(apps_of(service.worker))}
    shutil.copytree(folder, tmp_path / "kept")
    master, number = following(first, handle, plugin)
    again = master.register_shuffle(4, 1, shuffle=number)
    service.worker.kill()
    id = again.spec.id
    shutil.copytree(tmp_path / "kept", apps_of(service.worker) / id.app / f"{id.shuffle}.{id.generation}")
    service.worker.restart()
    assert master.map_outputs(again) == []
    written = write_map(plugin, again, 0)
    assert read_all(plugin, again) == written


@pytest.mark.parametrize("following", NEXT)
def test_late_tasks_of_what_has_ended_are_refused_by_name(
    plugin: RemoteShuffle, service: Service, following: Next
) -> None:
    first = plugin.master("nightly")
    handle = first.register_shuffle(2, 2)
    write_map(plugin, handle, 0)
    late = plugin.writer(handle, MapAttempt(1, 1))
    late.write(0, b"of yesterday")
    reader = plugin.reader(handle, range(2))
    master, number = following(first, handle, plugin)
    again = master.register_shuffle(2, 2, shuffle=number)
    with pytest.raises((UnknownShuffle, UnknownApp)) as refused:
        late.commit()
    assert refused.value.shuffle == handle.spec.id
    late.abort()
    with pytest.raises(ShuffleError), reader:
        list(reader)
    with pytest.raises((UnknownShuffle, UnknownApp)), plugin.writer(handle, MapAttempt(1, 2)) as writer:
        writer.write(0, b"of yesterday, begun today")
        writer.commit()
    first.unregister_shuffle(handle)
    with closing(ControlClient(service.control, client="test", timeout=60)) as control:
        key = messages.key_of(handle.spec.id)
        lost = pb.ReportLostRequest(shuffle=key, outputs=[pb.MapAttempt(map=0)], reason="late")
        for method, request in (
            ("Place", pb.PlaceRequest(shuffle=key)),
            ("Locate", pb.LocateRequest(shuffle=key)),
            ("ReportLost", lost),
        ):
            with pytest.raises((UnknownShuffle, UnknownApp)):
                control.call(method, request)
    written = write_map(plugin, again, 0) + write_map(plugin, again, 1)
    assert read_all(plugin, again) == sorted(written)


def test_driver_that_closes_late_ends_its_own_run_only(plugin: RemoteShuffle) -> None:
    first, second = plugin.master("nightly"), plugin.master("nightly")
    handle = second.register_shuffle(4, 1)
    written = write_map(plugin, handle, 0)
    first.close()
    first.close()
    assert read_all(plugin, handle) == written


def test_client_of_protocol_version_1_is_served_under_bare_names(service: Service, plugin: RemoteShuffle) -> None:
    with closing(ControlClient(service.control, client="old", timeout=60)) as control:
        hello: pb.HelloReply = control.call("Hello", pb.HelloRequest(protocol=1, client="old"))
        assert hello.protocol == 1
        spec = ShuffleSpec(ShuffleId("old", 3), 4, 1)
        for _ in range(2):
            control.call("RegisterApp", pb.RegisterAppRequest(app="old", instance="i"))
            control.call("RegisterShuffle", messages.spec_message(spec))
            handle = ShuffleHandle("remote", spec, service.control)
            assert read_all(plugin, handle, range(0)) == []
            written = write_map(plugin, handle, 0)
            assert read_all(plugin, handle) == written
            control.call("UnregisterShuffle", pb.UnregisterShuffleRequest(shuffle=messages.key_of(spec.id)))
            with pytest.raises(UnknownShuffle):
                read_all(plugin, handle)
        control.call("UnregisterApp", pb.UnregisterAppRequest(app="old"))
