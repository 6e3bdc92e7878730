"""Starts the peer, and ends it by its own id."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import IO, Self

from shuffle_api.errors import InternalError

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0


class PeerProcess:
    """The peer as a child process; a context manager. `ports` says where it listens on 127.0.0.1, by contender.

    :param budget: bytes of its buffer pool.
    :param serves: which contenders, as `peer.main`; none: all.
    :raises InternalError: it did not start; the message has its last words.
    """

    def __init__(self, budget: int, *serves: str) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "shuffle_transport.bench.peer", str(budget), *serves],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C goes to the command, which ends the peer in order
        )
        try:
            self.ports: dict[str, int] = json.loads(self._first_line())
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def last_words(self) -> str:
        """The end of what it said on standard error."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 2000))
        return self._errors.read().decode(errors="replace").strip()

    def close(self) -> None:
        """End it and wait for it; idempotent."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _first_line(self) -> bytes:
        out = self._process.stdout
        assert out is not None
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            ready = selector.select(START_TIMEOUT_S)
        line = out.readline() if ready else b""
        if not line.endswith(b"\n"):
            raise InternalError(
                f"the benchmark's other process did not start: {self.last_words() or 'it said nothing'}",
                remedy="run `python -m shuffle_transport.bench.peer 67108864` to see why",
            )
        return line
