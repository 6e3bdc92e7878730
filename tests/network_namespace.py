"""A host of its own on this machine: a network namespace, joined to this one by a link that can be cut."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Namespace:
    """`here` is this machine's address as the other host sees it, `there` is the other's."""

    name: str
    here: str
    there: str

    def run(self, *arguments: str) -> subprocess.Popen[str]:
        """A Python program on the other host; end it."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, sys.executable, *arguments], stdout=subprocess.PIPE, text=True
        )

    def cut(self) -> None:
        """Its link goes down: nothing that it or its peers send arrives, and neither end gets a FIN or a reset."""
        _ip("-n", self.name, "link", "set", "far", "down")


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
    made = Namespace(name, f"{net}.1", f"{net}.2")
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
    command: Sequence[str] = ("ip", *words)
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT)
