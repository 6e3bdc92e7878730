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
from shuffle_api.errors import UnknownShuffle
from shuffle_api.registry import ExpireApps
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.master.runtime import MasterRuntime
from shuffle_server.observe.instruments import Instruments
from shuffle_server.options import ServerOptions
from shuffle_server.security import OPEN
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.processes import stopped
from tests.shuffle_server.helpers import read_all, write_map

APP_TIMEOUT = 4.0
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
def serving(tmp_path: Path) -> Iterator[tuple[ServerProcess, Path]]:
    """A server, and the file that says by how much its wall clock is wrong."""
    clock = tmp_path / "clock"
    clock.write_text("0")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(CLOCK)
    prefix = ["env", f"CLOCK_FILE={clock}", f"PYTHONPATH={os.pathsep.join([str(tmp_path / 'site'), *sys.path])}"]
    arguments = ["--app-timeout", str(APP_TIMEOUT)]
    with ServerProcess(tmp_path / "data", tmp_path / "server.log", arguments, prefix=prefix) as server:
        yield server, clock


def apps(server: ServerProcess) -> set[str]:
    return {app.name for app in server.status().apps}


def register_dead(server: ServerProcess) -> None:
    """An application that sends no heartbeats."""
    with closing(ControlClient(server.control, client="test")) as client:
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
