"""Two masters and a database, each a process: kill -9 of the one that leads, in the middle of a job."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import psycopg
import pytest

from bench.harness.cluster import wait_until
from bench.harness.server import ServerProcess
from shuffle_plugins.remote import RemoteShuffle
from tests.shuffle_server.helpers import read_all, write_map
from tests.shuffle_server.master.database import Database, running_database

TIMEOUT = 240.0


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with running_database() as running:
        yield running


class Standby:
    """A master that stands by for the one that listens at the same address. A context manager."""

    def __init__(self, directory: Path, listen: str, metadata: str) -> None:
        self._log = directory.with_suffix(".log")
        options = ["--listen", listen, "--metadata", metadata, "--data-dir", str(directory)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "shuffle_server", "master", *options], stdout=subprocess.PIPE, stderr=log
            )
        wait_until(lambda: b"stands by" in self._log.read_bytes(), "the second master stands by")

    def __enter__(self) -> Standby:
        return self

    def await_ready(self) -> str:
        return self._said.readline().decode()

    @property
    def _said(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT)
        self._said.close()


def leader_of(tmp_path: Path, metadata: str) -> ServerProcess:
    return ServerProcess(tmp_path / "one", tmp_path / "one.log", ["--metadata", metadata], role="master")


def test_a_job_goes_on_at_the_next_master_when_the_one_that_led_is_killed(tmp_path: Path, database: Database) -> None:
    metadata = database.fresh()
    first = leader_of(tmp_path, metadata)
    with (
        ServerProcess(tmp_path / "w", tmp_path / "w.log", ["--master", first.control], role="worker") as worker,
        Standby(tmp_path / "two", first.control, metadata) as second,
        RemoteShuffle({"server": first.control, "timeout": 120, "retry": 120, "hand_over": "off"}) as plugin,
        plugin.master("job") as job,
    ):
        handle = job.register_shuffle(4, 4)
        expected = [record for n in (0, 1) for record in write_map(plugin, handle, n, 300)]
        first.kill()
        assert second.await_ready() == f"ready control={first.control}\n"
        expected += [record for n in (2, 3) for record in write_map(plugin, handle, n, 300)]
        assert read_all(plugin, handle) == sorted(expected)
        assert {output.worker for output in job.map_outputs(handle)} == {worker.worker}


def test_a_master_that_loses_its_session_ends_and_one_that_stands_by_can_be_stopped(
    tmp_path: Path, database: Database
) -> None:
    metadata = database.fresh()
    first = leader_of(tmp_path, metadata)
    with (
        Standby(tmp_path / "two", first.control, metadata) as second,
        Standby(tmp_path / "three", first.control, metadata) as third,
    ):
        third.process.send_signal(signal.SIGTERM)
        assert third.process.wait(TIMEOUT) == 0
        with psycopg.connect(metadata, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted")
        assert second.await_ready() == f"ready control={first.control}\n"
        wait_until(lambda: not first.running, "the master that led has ended")
        assert "does not lead any more" in (tmp_path / "one.log").read_text()
        first.kill()  # its pipe
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(TIMEOUT) == 0
