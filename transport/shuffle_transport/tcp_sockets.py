"""The TCP connections that this process has accepted, as the system sees them: who serves them (gRPC) shows none of it.

Only where /proc and TCP_INFO are (Linux); elsewhere there are none to be seen.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

_INFO = struct.Struct("=6B2x24I2Q2Q")
"""struct tcp_info of linux/tcp.h, up to tcpi_bytes_received."""
_STATE, _CLOSED = 0, 7
_PROBES, _UNACKED, _LAST_ACK_RECV, _BYTES_ACKED, _BYTES_RECEIVED = 3, 10, 18, 32, 33

PROBES = 3
GONE = "gone"
"""The host of connections that were closed before they were found."""


class Keepalive(NamedTuple):
    """When the system asks a peer that is silent whether it is there: seconds, and how many probes find it gone."""

    idle: int
    interval: int
    probes: int = PROBES

    @classmethod
    def within(cls, seconds: float) -> Keepalive:
        """A third of the time is for silence, and half of it for probes; at least a second each."""
        return cls(max(1, int(seconds / 3)), max(1, int(seconds / 2 / PROBES)))


class Accepted(NamedTuple):
    """One connection: its descriptor, the inode, by which later ones of that number differ, and its peer."""

    fd: int
    inode: int
    host: str
    peer: str  # as gRPC shows it: ipv4:1.2.3.4:5, ipv6:[::1]:5


class TcpInfo(NamedTuple):
    """What the system says of a connection. Bytes since its beginning; seconds; `closed`: by both its ends."""

    received: int
    acknowledged: int
    unacknowledged: int  # packets under way; 0 while the peer's window is shut
    probes: int  # of a shut window that were not answered
    last_answer: float
    closed: bool = False


class Sockets(NamedTuple):
    accepted: list[Accepted]
    listening: list[int]  # descriptors


def served_sockets(port: int, known: dict[int, Accepted]) -> Sockets:
    """The sockets of this process at a local port. Those in `known`, by descriptor, are not looked at again."""
    found = Sockets([], [])
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            fd = int(name)
            with contextlib.suppress(OSError):  # it was closed meanwhile
                status = os.fstat(fd)
                if not stat.S_ISSOCK(status.st_mode):
                    continue
                present = known.get(fd)
                if present is not None and present.inode == status.st_ino:
                    found.accepted.append(present)
                else:
                    _look(fd, status.st_ino, port, found)
    return found


def tcp_info(accepted: Accepted) -> TcpInfo | None:
    """None: it is closed, or the system does not say."""
    with contextlib.suppress(OSError), _borrowed(accepted.fd) as connection:
        data = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
        if len(data) == _INFO.size:
            info = _INFO.unpack(data)
            return TcpInfo(
                info[_BYTES_RECEIVED],
                info[_BYTES_ACKED],
                info[_UNACKED],
                info[_PROBES],
                info[_LAST_ACK_RECV] / 1000,
                info[_STATE] == _CLOSED,
            )
    return None


def keep_alive(accepted: Accepted, when: Keepalive) -> None:
    """Have the system ask a peer that says nothing whether it is there."""
    with contextlib.suppress(OSError), _borrowed(accepted.fd) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, when.idle)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, when.interval)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, when.probes)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def cut(accepted: Accepted) -> None:
    """Shut a connection down, unless it is closed already: its server finds it ended."""
    shut_down(accepted.fd, lambda connection: os.fstat(connection.fileno()).st_ino == accepted.inode)


def shut_down(descriptor: int, is_wanted: Callable[[socket.socket], bool]) -> None:
    """Shut down what a descriptor of this process is of, if that is a TCP connection that is wanted."""
    with contextlib.suppress(OSError):
        # A descriptor of its own: the original may be closed, and its number used again, at any moment.
        own = os.dup(descriptor)
        if not stat.S_ISSOCK(os.fstat(own).st_mode):
            os.close(own)
            return
        with socket.socket(fileno=own) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6) and is_wanted(connection):
                connection.shutdown(socket.SHUT_RDWR)


def _look(fd: int, inode: int, port: int, found: Sockets) -> None:
    with _borrowed(fd) as connection:
        address = connection.getsockname()
        if not isinstance(address, tuple) or address[1] != port:
            return
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            found.listening.append(fd)
            return
        try:
            host, peer_port = connection.getpeername()[:2]
        except OSError:  # it is closed by both its ends, and its descriptor is still there
            host, peer_port = GONE, inode
    # gRPC listens for both families with one socket, and shows mapped addresses as IPv4.
    host = host.removeprefix("::ffff:")
    peer = f"ipv6:[{host}]:{peer_port}" if ":" in host else f"ipv4:{host}:{peer_port}"
    found.accepted.append(Accepted(fd, inode, host, peer))


@contextlib.contextmanager
def _borrowed(fd: int) -> Iterator[socket.socket]:
    """A socket object for a descriptor that is another's, and stays open."""
    connection = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 0, fileno=fd)
    try:
        yield connection
    finally:
        connection.detach()
