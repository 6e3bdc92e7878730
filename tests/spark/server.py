"""A server process that tests may kill and start again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.harness.files import files_below
from bench.harness.server import ServerFailed, ServerProcess
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import NO_CREDENTIALS, Credentials

GONE_TIMEOUT_S = 180.0


class Server:
    """The server of a directory; its address stays the same over `kill` and `start`, its data too.

    ``arguments`` are further ones of its command line, ``credentials`` what `status` shows it.
    """

    def __init__(self, directory: Path, *arguments: str, credentials: Credentials = NO_CREDENTIALS) -> None:
        self.data_dir = directory / "data"
        self._arguments, self._credentials = arguments, credentials
        self._directory = directory
        self._starts = 0
        self._process = self._start()
        self.control = self._process.control

    @property
    def data(self) -> str:
        """The Flight endpoint's address; it may change with a restart."""
        return self._process.data

    @property
    def metrics(self) -> str:
        """The monitoring endpoint's address; empty without ``--metrics-listen``."""
        return self._process.metrics

    @property
    def pid(self) -> int:
        return self._process.pid

    def status(self) -> pb.StatusReply:
        return self._process.status()

    def kill(self) -> None:
        """``kill -9``."""
        os.kill(self._process.pid, signal.SIGKILL)
        with pytest.raises(ServerFailed):
            self._process.stop()

    def start(self) -> None:
        """Start again after `kill`."""
        self._process = self._start(self.control)

    def output(self, app: str, shuffle: int, map_id: int) -> Path:
        """The file of one committed map output, of the newest generation. Its number is that of the task attempt."""
        [path] = self.folder(app, shuffle).glob(f"{map_id}.*.out")
        return path

    def folder(self, app: str, shuffle: int) -> Path:
        """Where the files of the newest generation of a shuffle number lie."""
        return max(self._generations(app, shuffle), key=lambda path: path.stat().st_mtime_ns)

    def _generations(self, app: str, shuffle: int) -> list[Path]:
        """The directories of a shuffle number."""
        return list((self.data_dir / "worker" / "apps" / app).glob(f"{shuffle}.*"))

    def wait_until_gone(
        self, app: str, shuffle: int | None = None, *, meanwhile: Callable[[], object] | None = None
    ) -> None:
        """Wait until no file of an application, or of one shuffle of it, is left; repeat ``meanwhile`` all the time.

        Raises TimeoutError naming those that are.
        """
        apps = self.data_dir / "worker" / "apps"
        trash = self.data_dir / "worker" / "trash"
        deadline = time.monotonic() + GONE_TIMEOUT_S
        while left := [
            file
            for directory in [trash, *([apps / app] if shuffle is None else self._generations(app, shuffle))]
            for file in files_below(directory)
        ]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"still there after {GONE_TIMEOUT_S:.0f} s: {', '.join(map(str, left))}")
            if meanwhile is not None:
                meanwhile()
            time.sleep(0.2)

    def _start(self, listen: str = "127.0.0.1:0") -> ServerProcess:
        self._starts += 1
        log = self._directory / f"server-{self._starts}.log"
        return ServerProcess(self.data_dir, log, self._arguments, credentials=self._credentials, listen=listen)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.stop()
