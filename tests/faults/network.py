"""Network namespaces joined by veth pairs to a bridge: machines, as far as processes can tell. Needs root and `ip`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

INSIDE = "FLIGHT_SHUFFLE_BENCH_NAMESPACE"
"""Set in the environment of a process that has a network namespace of its own."""
NET = "10.77.0"
COMMAND_S = 30.0


def possible() -> bool:
    """Whether this user may make network namespaces on this machine."""
    try:
        return (
            subprocess.run(["unshare", "--net", "ip", "link"], capture_output=True, timeout=COMMAND_S).returncode == 0
        )
    except OSError:
        return False


def run_inside(module: str, arguments: Sequence[str]) -> int:
    """Run ``python -m module arguments`` in a new network namespace; its exit status."""
    command = ["unshare", "--net", sys.executable, "-m", module, *arguments]
    return subprocess.run(command, env=os.environ | {INSIDE: "1"}).returncode


def inside() -> bool:
    """Whether this process was started by `run_inside`."""
    return INSIDE in os.environ


class Network:
    """A bridge in this process's namespace, which must be its own, and machines on it. A context manager.

    :ivar address: this process's on the bridge.
    """

    address = f"{NET}.1"

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._machines = 0
        self._extra = 100
        _ip("link", "set", "lo", "up")
        _ip("link", "add", "bridge", "type", "bridge")
        _ip("address", "add", f"{self.address}/24", "dev", "bridge")
        _ip("link", "set", "bridge", "up")

    def machine(self) -> Machine:
        """Another namespace, with an address on the bridge."""
        self._machines += 1
        return self._stack.enter_context(Machine(self._machines + 1))

    def another_address(self) -> str:
        """One more address of this process, for a proxy that has to listen on somebody else's port."""
        self._extra += 1
        address = f"{NET}.{self._extra}"
        _ip("address", "add", f"{address}/24", "dev", "bridge")
        return address

    def __enter__(self) -> Network:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        _ip("link", "delete", "bridge")


class Machine:
    """A network namespace, kept alive by a process that waits for the end of its input.

    :ivar address: its own.
    :ivar prefix: what goes before a command to run it there.
    """

    def __init__(self, number: int) -> None:
        self.address, self._link = f"{NET}.{number}", f"veth{number}"
        self._holder = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert self._holder.stdin is not None
            assert self._holder.stdout is not None
            self._holder.stdin.write(b"ready\n")
            self._holder.stdin.flush()
            self._holder.stdout.readline()  # it is there, so the namespace is
            pid = str(self._holder.pid)
            self.prefix = ("nsenter", f"--net=/proc/{pid}/ns/net")
            _ip("link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", pid)
            _ip("link", "set", self._link, "master", "bridge", "up")
            self._inside("address", "add", f"{self.address}/24", "dev", "eth0")
            self._inside("link", "set", "eth0", "up")
            self._inside("link", "set", "lo", "up")
        except BaseException:
            self._holder.kill()
            self._holder.wait()
            raise

    def cut(self) -> None:
        """Take the cable out: packets are lost, and neither end gets an error."""
        _ip("link", "set", self._link, "down")

    def mend(self) -> None:
        """Put it back."""
        _ip("link", "set", self._link, "up")

    def __enter__(self) -> Machine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._holder.communicate(timeout=COMMAND_S)  # with its end the namespace and the link go

    def _inside(self, *arguments: str) -> None:
        _run([*self.prefix, "ip", *arguments])


def _ip(*arguments: str) -> None:
    _run(["ip", *arguments])


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
