"""Stopped processes and wall clocks that are set: live applications keep their data, dead ones expire."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from bench.harness.server import ServerProcess
from shuffle_api.errors import Unauthenticated, UnknownShuffle
from shuffle_api.interfaces import Options
from shuffle_api.registry import ExpireApps
from shuffle_api.values import WorkerInfo
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.master.runtime import MasterRuntime
from shuffle_server.observe.instruments import Instruments
from shuffle_server.options import ServerOptions
from shuffle_server.proto.registry_pb2 import JoinRequest
from shuffle_server.proto.registry_pb2_grpc import ShuffleRegistryStub as Stub
from shuffle_server.security import OPEN
from shuffle_transport import messages
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import NO_CREDENTIALS, Credentials
from shuffle_transport.tokens import app_token, cluster_token, worker_token
from tests.processes import stopped
from tests.shuffle_server.helpers import read_all, write_map

APP_TIMEOUT = 4.0
SECRET = b"s" * 40
WITHIN = 60.0
CLOCK = """
import os, time
real = time.time
def fake():
    with open(os.environ["CLOCK_FILE"]) as file:
        return real() + float(file.read() or 0)
time.time = fake
"""


def eventually(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@contextmanager
def serving(
    tmp_path: Path, *arguments: str, role: str = "server", credentials: Credentials = NO_CREDENTIALS
) -> Iterator[tuple[ServerProcess, Path]]:
    """A server, and the file that says by how much its wall clock is wrong."""
    clock = tmp_path / "clock"
    clock.write_text("0")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(CLOCK)
    prefix = ["env", f"CLOCK_FILE={clock}", f"PYTHONPATH={os.pathsep.join([str(tmp_path / 'site'), *sys.path])}"]
    given = ["--app-timeout", str(APP_TIMEOUT), *arguments]
    data, log = tmp_path / "data", tmp_path / "server.log"
    with ServerProcess(data, log, given, prefix=prefix, role=role, credentials=credentials) as server:
        yield server, clock


def apps(server: ServerProcess) -> set[str]:
    return {app.name for app in server.status().apps}


def register_dead(server: ServerProcess, credentials: Credentials = NO_CREDENTIALS) -> None:
    """An application that sends no heartbeats."""
    with closing(ControlClient(server.control, client="test", credentials=credentials)) as client:
        client.call("RegisterApp", pb.RegisterAppRequest(app="dead", instance="i", name="dead"))


@pytest.mark.parametrize("offset", [86_400, -86_400])
def test_a_wall_clock_that_is_set_drops_no_live_application_and_saves_no_dead_one(tmp_path: Path, offset: int) -> None:
    with serving(tmp_path) as (server, clock), RemoteShuffle({"server": server.control}) as plugin:
        with plugin.master("live") as master:
            handle = master.register_shuffle(4, 1)
            written = write_map(plugin, handle, 0)
            register_dead(server)
            clock.write_text(str(offset))
            eventually(lambda: apps(server) == {"live"})
            assert read_all(plugin, handle) == written


def private(path: Path, text: str) -> str:
    path.write_text(f"{text}\n")
    path.chmod(0o600)
    return str(path)


def test_tokens_that_are_over_by_a_wrong_wall_clock_cost_an_application_no_data(tmp_path: Path) -> None:
    """Its heartbeats are refused, and count."""
    cluster = Credentials(token=cluster_token(SECRET))
    token = private(tmp_path / "token", app_token(SECRET, "live", int(time.time()) + 3600))
    secret = private(tmp_path / "secret", SECRET.decode())
    with serving(tmp_path, "--secret-file", secret, credentials=cluster) as (server, clock):
        options: Options = {"server": server.control, "token_file": token, "timeout": 60, "retry": 60}
        with RemoteShuffle(options) as plugin, plugin.master("live") as master:
            handle = master.register_shuffle(4, 1)
            written = write_map(plugin, handle, 0)
            clock.write_text("7200")
            register_dead(server, cluster)
            eventually(lambda: apps(server) == {"live"})
            with pytest.raises(Unauthenticated, match="the token of application 'live' expired"):
                read_all(plugin, handle)
            clock.write_text("0")
            assert read_all(plugin, handle) == written


@pytest.mark.parametrize("restarts", [False, True])
def test_tokens_that_are_over_by_a_wrong_wall_clock_cost_a_worker_no_output(tmp_path: Path, restarts: bool) -> None:
    """Nor after a restart of the master, which the worker cannot join."""
    cluster = Credentials(token=cluster_token(SECRET))
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "worker-id").write_text("w-1")
    token = private(tmp_path / "token", worker_token(SECRET, "w-1", int(time.time()) + 3600))
    secret = private(tmp_path / "secret", SECRET.decode())
    arguments = ["--secret-file", secret, "--worker-timeout", str(APP_TIMEOUT)]
    with (
        serving(tmp_path, *arguments, role="master", credentials=cluster) as (server, clock),
        ServerProcess(
            tmp_path / "w", tmp_path / "w.log", ["--master", server.control, "--token-file", token], role="worker"
        ) as process,
        RemoteShuffle({"server": server.control, "secret_file": secret, "timeout": 60, "retry": 60}) as plugin,
        plugin.master("live") as master,
    ):
        handle = master.register_shuffle(4, 1)
        written = write_map(plugin, handle, 0)
        with stopped(process.pid):
            if restarts:
                server.kill()
                server.restart()
            clock.write_text("7200")
        with closing(ControlClient(server.control, client="t", retry=60, credentials=cluster, stub=Stub)) as client:
            gone = messages.worker_message(WorkerInfo("gone", "h", 1))
            client.call("Join", JoinRequest(worker=gone, incarnation=1, protocol=messages.PROTOCOL))
        eventually(lambda: [worker.id for worker in server.status().workers] == ["w-1"])
        [worker] = server.status().workers
        assert worker.silent
        clock.write_text("0")
        eventually(lambda: not server.status().workers[0].silent)
        assert read_all(plugin, handle) == written


def test_a_revoked_application_expires_though_it_sends_heartbeats(tmp_path: Path) -> None:
    cluster = Credentials(token=cluster_token(SECRET))
    secret, revoked = private(tmp_path / "secret", SECRET.decode()), private(tmp_path / "revoked", "other")
    arguments = ["--secret-file", secret, "--revoked-file", revoked]
    with serving(tmp_path, *arguments, credentials=cluster) as (server, _):
        token = private(tmp_path / "token", app_token(SECRET, "bad"))
        with RemoteShuffle({"server": server.control, "token_file": token, "retry": 0}) as plugin:
            master = plugin.master("bad")
            private(tmp_path / "revoked", "bad")
            eventually(lambda: not apps(server))
            master.close()


def test_a_server_that_was_stopped_drops_no_live_application_and_a_dead_one_expires_afterwards(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, _), RemoteShuffle({"server": server.control, "retry": 60}) as plugin:
        with plugin.master("live") as master:
            handle = master.register_shuffle(4, 1)
            written = write_map(plugin, handle, 0)
            register_dead(server)
            for _ in range(2):
                with stopped(server.pid):
                    time.sleep(1.5 * APP_TIMEOUT)
            eventually(lambda: apps(server) == {"live"})
            assert read_all(plugin, handle) == written
            assert master.register_shuffle(4, 1).spec.id.shuffle == handle.spec.id.shuffle + 1


DRIVER = """
import sys
from shuffle_api import MapAttempt, ShuffleError, open_plugin

def run(handle):
    with plugin.writer(handle, MapAttempt(0, 0)) as writer:
        writer.write(0, b"precious")
        writer.commit()
    with plugin.reader(handle, range(1)) as reader:
        return [record for _, record in reader]

with open_plugin("remote", {"server": sys.argv[1], "retry": 60}) as plugin, plugin.master("driver") as master:
    lost = master.register_shuffle(partitions=1, maps=1)
    print(run(lost), flush=True)
    sys.stdin.readline()
    print(run(master.register_shuffle(partitions=1, maps=1)), flush=True)
    try:
        with plugin.reader(lost, range(1)) as reader:
            print(list(reader))
    except ShuffleError as error:
        print(type(error).__name__)
"""


def test_a_driver_that_was_stopped_for_too_long_registers_again_and_reruns_its_shuffles(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, _):
        command = [sys.executable, "-c", DRIVER, server.control]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
            try:
                assert driver.stdout is not None
                assert driver.stdout.readline() == "[b'precious']\n"
                with stopped(driver.pid):
                    eventually(lambda: not apps(server))
                said, _ = driver.communicate("go on\n", timeout=WITHIN)
            finally:
                driver.kill()
        assert said.splitlines() == ["[b'precious']", "UnknownShuffle"]
        assert driver.returncode == 0


@pytest.mark.parametrize("beats", [True, False])
def test_an_expired_run_registers_again_with_its_next_heartbeat_or_shuffle_and_warns_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, beats: bool
) -> None:
    caplog.set_level(logging.WARNING, "shuffle_plugins.remote.master")
    timeout = APP_TIMEOUT if beats else 600.0
    options = ServerOptions(data_dir=str(tmp_path / "m"), listen="127.0.0.1:0", app_timeout=timeout)
    part = MasterRuntime(options, Instruments())
    registry, address = part.master.registry, part.serve(OPEN)
    try:
        with RemoteShuffle({"server": address}) as plugin, plugin.master("app") as master:
            lost = master.register_shuffle(1, 1)
            part.master.apply(ExpireApps(tuple(app.app for app in registry.apps())))
            if beats:
                eventually(lambda: bool(registry.apps()))
            again = master.register_shuffle(1, 1)
            assert [spec.id for spec in registry.shuffles()] == [again.spec.id]
            with pytest.raises(UnknownShuffle), plugin.reader(lost, range(1)) as reader:
                list(reader)
        assert registry.apps() == []
    finally:
        part.stop()
        part.close()
    assert len([record for record in caplog.records if "is registered again" in record.getMessage()]) == 1
