"""Masters at PostgreSQL as processes, of which one leads, and a way to cut one off from the database."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
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


class CutProxy:
    """A TCP port in front of the database's socket that passes nothing on while it is cut. A context manager.

    :param patience: seconds after which both ends of a connection whose bytes are not passed on are closed, as TCP's
        user timeout closes one whose bytes or keepalives are not acknowledged; None: never.
    """

    def __init__(self, database: str, patience: float | None = None) -> None:
        self._patience = patience
        parts = psycopg.conninfo.conninfo_to_dict(database)
        self._socket = f"{parts['host']}/.s.PGSQL.5432"
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = f"postgresql://{USER}@127.0.0.1:{port}/{parts['dbname']}?sslmode=disable&gssencmode=disable"
        self._flows = threading.Event()
        self._flows.set()
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def cut(self) -> None:
        self._flows.clear()

    def mend(self) -> None:
        self._flows.set()

    def _start(self, run: Any, *arguments: socket.socket) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._socket)
            self._ends += [near, far]
            self._start(self._pass_on, near, far)
            self._start(self._pass_on, far, near)

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while piece := source.recv(1 << 16):
                if not self._flows.wait(self._patience):
                    for end in (source, sink):
                        end.shutdown(socket.SHUT_RDWR)
                    return
                sink.sendall(piece)
            self._flows.wait()
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # one end has gone

    def __enter__(self) -> CutProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.mend()
        for each in [self._listener, *self._ends]:
            with suppress(OSError):  # its peer was faster
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(TIMEOUT)
            assert not thread.is_alive()
