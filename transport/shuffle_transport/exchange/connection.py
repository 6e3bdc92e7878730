"""Ending a connection of this process's Flight server: with pyarrow, a server cannot cancel a call."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from urllib.parse import unquote


def cut(peer: str) -> None:
    """Shut down the TCP connection to `peer` (`ipv4:1.2.3.4:5`, `ipv6:[::1]:5`, as gRPC writes it); all its calls end.

    For a peer that takes nothing any more: a write to it would wait for ever. Does nothing where file descriptors are
    not listed in /proc; then such a write ends when the system gives the connection up.
    """
    kind, _, address = unquote(peer).partition(":")
    host, _, port = address.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdigit():
        return
    try:
        descriptors = os.listdir("/proc/self/fd")
    except OSError:
        return
    for descriptor in descriptors:
        _shut(int(descriptor), (host.strip("[]"), int(port)))


def _shut(descriptor: int, peer: tuple[str, int]) -> None:
    with contextlib.suppress(OSError):
        # A descriptor of its own: the original may be closed, and its number used again, at any moment.
        copy = os.dup(descriptor)
        if not stat.S_ISSOCK(os.fstat(copy).st_mode):
            os.close(copy)
            return
        with socket.socket(fileno=copy) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getpeername()[:2] == peer:
                connection.shutdown(socket.SHUT_RDWR)
