"""A worker as a relay between tasks: a server's process, with a data port that it has again after a restart."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.harness.server import ServerFailed, ServerProcess, lasting_addresses
from shuffle_transport.security import NO_CREDENTIALS, Credentials


class RelayProcess:
    """`flight-shuffle server` with `address` as its data endpoint. A context manager, stopped with SIGKILL."""

    def __init__(
        self, directory: Path, arguments: Sequence[str] = (), *, credentials: Credentials = NO_CREDENTIALS
    ) -> None:
        self.address, control = lasting_addresses(2)
        given = ["--data-listen", self.address, *arguments]
        self._server = ServerProcess(
            directory / "relay", directory / "relay.log", given, credentials=credentials, listen=control
        )
        self._restart: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Of the process that runs, or ran last."""
        return self._server.pid

    @property
    def metrics(self) -> str:
        return self._server.metrics

    def kill(self) -> None:
        """`kill -9`, and nobody starts it again yet."""
        self.settle()
        self._server.kill()

    def stop(self) -> None:
        """SIGTERM, and wait for its end. Raises ServerFailed if that does not come."""
        self.settle()
        self._server.stop()

    def restart(self) -> None:
        """Start it again after `kill` or `stop`; returns when it serves."""
        self._server.restart()

    def strike(self) -> None:
        """`kill -9`, and another start at once, on a thread of its own. Nothing while one is under way."""
        if self._restart is None or not self._restart.is_alive():
            self._server.kill()
            self._restart = threading.Thread(target=self.restart, name="relay-restart", daemon=True)
            self._restart.start()

    def freeze(self) -> int | None:
        """SIGSTOP; the process to be thawed. None while a start is under way."""
        if self._restart is not None and self._restart.is_alive():
            return None
        os.kill(self._server.pid, signal.SIGSTOP)
        return self._server.pid

    def settle(self) -> None:
        """Wait for a start that is under way."""
        if self._restart is not None:
            self._restart.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.settle()
        try:
            self._server.kill()
        except ServerFailed:
            pass  # its last start failed, as the run has shown
