"""A Flight Shuffle server as a process of its own, the way a user runs it."""

from __future__ import annotations

import random
import re
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from bench.harness.ending import starting
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import NO_CREDENTIALS, Credentials

READY = re.compile(r"^ready( \w+=\S+)+$")
START_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 120.0
TAKEN_TIMEOUT_S = 30.0


class ServerFailed(Exception):
    """The server did not start or did not stop; the message has its last words."""


def lasting_addresses(count: int) -> list[str]:
    """Free addresses, each another, that the system gives to no process while the one that has them is down."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    taken: list[str] = []
    with ExitStack() as stack:
        while len(taken) < count:
            host, port = "127.0.0.1", random.randrange(10_000, first)
            with suppress(OSError):  # somebody has it
                stack.enter_context(socket.create_server((host, port)))
                taken.append(f"{host}:{port}")
    return taken


class ServerProcess:
    """``flight-shuffle server`` on free ports of 127.0.0.1; a context manager, stopped with SIGTERM.

    ``control``, ``data`` and ``metrics`` (empty without ``--metrics-listen``) are its addresses; ``log`` takes its
    standard error; ``credentials`` are for `status`. ``role`` may be ``master``, which has no ``data``, or ``worker``,
    which has no ``control`` and a ``worker`` id. ``prefix`` goes before the command, to run it elsewhere.
    Raises ServerFailed if it is not ready within `START_TIMEOUT_S`.
    """

    def __init__(
        self,
        data_dir: Path,
        log: Path,
        arguments: Sequence[str] = (),
        *,
        credentials: Credentials = NO_CREDENTIALS,
        role: str = "server",
        listen: str = "127.0.0.1:0",
        prefix: Sequence[str] = (),
    ) -> None:
        self._role, self._prefix = role, tuple(prefix)
        self._client: ControlClient | None = None
        self.data_dir, self.log, self._credentials = data_dir, log, credentials
        self._arguments = tuple(arguments)
        self._start(listen)

    def kill(self) -> None:
        """``kill -9``: the process has no chance to do anything."""
        self._close_client()
        self._kill()

    def restart(self) -> None:
        """Start again after `kill` or `stop`: same data, same control address; the data port may be another."""
        self._start(self.control)

    def _start(self, listen: str) -> None:
        # An address that was its own a moment ago may be where somebody's connection comes from now: that passes.
        deadline = time.monotonic() + TAKEN_TIMEOUT_S
        while True:
            try:
                self._launch(listen)
                return
            except ServerFailed as failed:
                taken = f"cannot listen on {listen}:" in str(failed).splitlines()[-1]
                if not taken or time.monotonic() > deadline:
                    raise
            time.sleep(0.5)

    def _launch(self, listen: str) -> None:
        command = [*self._prefix, sys.executable, "-m", "shuffle_server", self._role]
        command += ["--listen", listen] if self._role != "worker" else []
        if self._role != "master" and not any(each.startswith("--data-listen") for each in self._arguments):
            command += ["--data-listen", f"{listen.rpartition(':')[0] or '127.0.0.1'}:0"]
        self._owned = False
        try:
            with starting(), self.log.open("ab") as errors:
                self._process = subprocess.Popen(
                    [*command, "--data-dir", str(self.data_dir), *self._arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,  # Ctrl-C goes to whoever started us, who stops us in order
                )
                self._owned = True
            ready = self._await_ready()
            self.control, self.data = ready.get("control", ""), ready.get("data", "")
            self.metrics, self.worker = ready.get("metrics", ""), ready.get("worker", "")
            if self.control:
                self._client = ControlClient(self.control, client="flight-shuffle-bench", credentials=self._credentials)
        except BaseException:
            if self._owned:
                self._kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it is: not after `kill` or `stop`."""
        return self._process.poll() is None

    def status(self) -> pb.StatusReply:
        """Counters and what the server holds now. Not of a worker."""
        assert self._client is not None
        reply: pb.StatusReply = self._client.call("Status", pb.StatusRequest())
        return reply

    def stop(self) -> None:
        """SIGTERM, then wait; idempotent. Raises ServerFailed if it does not end or ends with an error."""
        self._close_client()
        if self._process.poll() is None:
            self._process.terminate()
        try:
            status = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._kill()
            raise ServerFailed(
                f"the server did not stop within {STOP_TIMEOUT_S:g} s; killed.{self._last_words()}"
            ) from None
        self._stdout().close()
        if status != 0:
            raise ServerFailed(f"the server ended with status {status}.{self._last_words()}")

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _await_ready(self) -> dict[str, str]:
        deadline = time.monotonic() + START_TIMEOUT_S
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout(), selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise ServerFailed(f"the server was not ready after {START_TIMEOUT_S:g} s.{self._last_words()}")
                piece = self._stdout().read1(4096)  # type: ignore[attr-defined]
                if not piece:
                    raise ServerFailed(f"the server ended before it was ready.{self._last_words()}")
                line += piece
        said = line.decode().strip()
        if not READY.match(said):
            raise ServerFailed(f"the server's first line is not its ready line: {line.decode()!r}.{self._last_words()}")
        return dict(word.split("=", 1) for word in said.split()[1:])

    def _close_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)
        self._stdout().close()

    def _last_words(self) -> str:
        said = self.log.read_text(errors="replace").splitlines()[-20:]
        return "\n" + "\n".join(said) if said else ""
