"""Masters at PostgreSQL as processes, of which one leads."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from bench.harness.cluster import wait_until
from bench.harness.server import lasting_addresses
from tests.processes import await_stopped
from tests.shuffle_server.master.database import USER

TIMEOUT = 240.0


class MasterProcess:
    """`flight-shuffle master`, which may lead at once or later. A context manager, ended with SIGKILL."""

    def __init__(self, directory: Path, metadata: str, options: Sequence[str] = (), control: str = "") -> None:
        free, self.metrics = lasting_addresses(2)
        self.control = control or free
        self._url = f"{'https' if '--tls-cert' in options else 'http'}://{self.metrics}"
        self.log = directory.with_suffix(".log")
        command = [sys.executable, "-m", "shuffle_server", "master", "--data-dir", str(directory)]
        command += ["--listen", self.control, "--metrics-listen", self.metrics, "--metadata", metadata, *options]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)

    def await_leading(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line == f"ready control={self.control} metrics={self.metrics}\n", self.log.read_text()

    def await_standing_by(self) -> None:
        wait_until(lambda: b"stands by" in self.log.read_bytes(), "the second master stands by")

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        try:
            with self._asked(path) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def metric(self, name: str) -> float:
        with self._asked("/metrics") as reply:
            [line] = [line for line in reply.read().decode().splitlines() if line.startswith(f"{name} ")]
        return float(line.split()[1])

    def _asked(self, path: str) -> Any:
        anybody = ssl._create_unverified_context()  # its certificate is tested elsewhere
        return urllib.request.urlopen(self._url + path, timeout=TIMEOUT, context=anybody)

    def stop(self) -> None:
        """SIGSTOP; returns when no thread runs any more, which takes the kernel a while on a busy machine."""
        os.kill(self.process.pid, signal.SIGSTOP)
        await_stopped(self.process.pid)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def __enter__(self) -> MasterProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT)
        assert self.process.stdout is not None
        self.process.stdout.close()


def socket_of(database: str) -> str:
    """The path of the socket at which the database listens."""
    return f"{psycopg.conninfo.conninfo_to_dict(database)['host']}/.s.PGSQL.5432"


def reached_at(address: str, database: str) -> str:
    """The URL of the database for a client that is to reach it there (HOST:PORT)."""
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    return f"postgresql://{USER}@{address}/{name}?sslmode=disable&gssencmode=disable"
