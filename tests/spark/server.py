"""A server process that tests may kill and start again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.files import files_below
from bench.server import ServerFailed, ServerProcess
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
        """The file of one committed map output. Spark's map ids are its task attempt ids."""
        return self.data_dir / "worker" / "apps" / app / str(shuffle) / f"{map_id}.*.out"

    def wait_until_gone(
        self, app: str, shuffle: int | None = None, *, meanwhile: Callable[[], object] | None = None
    ) -> None:
        """Wait until no file of an application, or of one shuffle of it, is left; repeat ``meanwhile`` all the time.

        Raises TimeoutError naming those that are.
        """
        directory = self.data_dir / "worker" / "apps" / app / ("" if shuffle is None else str(shuffle))
        trash = self.data_dir / "worker" / "trash"
        deadline = time.monotonic() + GONE_TIMEOUT_S
        while left := [*files_below(directory), *files_below(trash)]:
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
