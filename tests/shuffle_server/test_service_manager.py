"""What a server says to systemd: that it is ready, stands by, and stops."""

from __future__ import annotations

import functools
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.harness.server import ServerProcess
from shuffle_server.cli.roles import SOCKET, STATE_READY, STATE_STOPPING, notify
from shuffle_server.options import ServerOptions
from shuffle_server.server import MasterServer
from tests.shuffle_server.master.database import running_database

TIMEOUT = 240.0


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(TIMEOUT)
        yield listening


def said(manager: socket.socket) -> list[str]:
    return manager.recv(4096).decode().splitlines()


def test_a_server_says_that_it_is_ready_where_it_serves_and_that_it_stops(
    tmp_path: Path, manager: socket.socket
) -> None:
    command = [sys.executable, "-m", "shuffle_server", "server", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    environment = {**os.environ, SOCKET: manager.getsockname()}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            ready, status = said(manager)
            assert server.stdout is not None
            line = server.stdout.readline().strip()
            assert (ready, status) == (STATE_READY, f"STATUS=serves at {line.removeprefix('ready ')}")
            server.send_signal(signal.SIGTERM)
            assert said(manager) == [STATE_STOPPING]
            assert server.wait(TIMEOUT) == 0
        finally:
            server.kill()


def test_a_master_that_stands_by_is_ready_before_it_leads(tmp_path: Path, manager: socket.socket) -> None:
    with running_database() as database:
        metadata = ["--metadata", database.fresh()]
        with ServerProcess(tmp_path / "one", tmp_path / "one.log", metadata, role="master") as leader:
            command = [sys.executable, "-m", "shuffle_server", "master", str(tmp_path / "two"), *metadata]
            environment = {**os.environ, SOCKET: manager.getsockname()}
            with subprocess.Popen([*command, "--listen", leader.control], env=environment) as other:
                try:
                    assert said(manager) == [STATE_READY, "STATUS=stands by for the master that leads"]
                finally:
                    other.kill()


def test_nothing_is_said_without_a_manager_and_one_that_is_gone_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(SOCKET, raising=False)
    with caplog.at_level(logging.WARNING):
        assert not notify(STATE_READY)
        assert not caplog.records
        monkeypatch.setenv(SOCKET, str(tmp_path / "gone"))
        assert not notify(STATE_READY)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(tmp_path / "gone") in caplog.text


def test_a_socket_without_a_file_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("")  # the system picks a name
        listening.settimeout(TIMEOUT)
        monkeypatch.setenv(SOCKET, "@" + listening.getsockname()[1:].decode())
        assert notify(STATE_READY)
        assert said(listening) == [STATE_READY]


def test_only_a_master_that_stands_by_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    options = ServerOptions(data_dir=str(tmp_path), listen="127.0.0.1:0")
    MasterServer(options, stands_by=functools.partial(said.append, "stands by")).stop()
    assert not said
