"""A host of its own on this machine: a network namespace, joined to this one by a link that can be cut."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Namespace:
    """`here` is this machine's address as the other host sees it, `there` is the other's."""

    name: str
    here: str
    there: str
    near: str  # this machine's end of the link

    def run(self, *arguments: str) -> subprocess.Popen[str]:
        """A Python program on the other host; end it."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, sys.executable, *arguments], stdout=subprocess.PIPE, text=True
        )

    def cut(self) -> None:
        """Its link goes down: nothing that it or its peers send arrives, and neither end gets a FIN or a reset."""
        _ip("-n", self.name, "link", "set", "far", "down")

    def carried(self) -> int:
        """Bytes that have gone over its link, in both directions together."""
        statistics = Path("/sys/class/net") / self.near / "statistics"
        return sum(int((statistics / name).read_text()) for name in ("rx_bytes", "tx_bytes"))

    def limit(self, mbit: int) -> None:
        """Its link takes so many Mbit/s in each direction (a token bucket)."""
        bucket = f"root tbf rate {mbit}mbit burst 256kb latency 50ms".split()
        _run("tc", "qdisc", "replace", "dev", self.near, *bucket)
        _run("tc", "-n", self.name, "qdisc", "replace", "dev", "far", *bucket)


def why_not() -> str:
    """Why there can be no namespace; empty when there can."""
    if shutil.which("ip") is None:
        return "there is no program ip (iproute2)"
    try:
        with namespace():
            return ""
    except subprocess.CalledProcessError as error:
        return f"ip {' '.join(error.cmd[1:3])} failed: {error.stderr.strip()}"


@contextmanager
def namespace() -> Iterator[Namespace]:
    """Raises subprocess.CalledProcessError where this user may not make one."""
    tag = secrets.token_hex(3)
    name, near = f"shuffle-{tag}", f"fs{tag}"
    net = f"10.231.{os.getpid() % 256}"
    made = Namespace(name, f"{net}.1", f"{net}.2", near)
    _ip("netns", "add", name)
    try:
        _ip("link", "add", near, "type", "veth", "peer", "name", "far", "netns", name)
        _ip("addr", "add", f"{made.here}/30", "dev", near)
        _ip("link", "set", near, "up")
        _ip("-n", name, "addr", "add", f"{made.there}/30", "dev", "far")
        for link in ("far", "lo"):
            _ip("-n", name, "link", "set", link, "up")
        yield made
    finally:
        with suppress(subprocess.CalledProcessError):
            _ip("link", "delete", near)
        _ip("netns", "delete", name)


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT)
