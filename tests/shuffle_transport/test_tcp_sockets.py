"""What is done to connections that another part of this process has accepted, and may close at any moment."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from shuffle_transport.tcp_sockets import Accepted, cut


def _files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_connection_that_is_cut_ends_and_its_descriptor_stays() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            before = _files()
            cut(Accepted(accepted.fileno(), os.fstat(accepted.fileno()).st_ino, "127.0.0.1", "ipv4:127.0.0.1:1"))
            client.settimeout(10)
            assert client.recv(1) == b""
            assert _files() == before


@pytest.mark.parametrize("now", ["file", "socket", "closed"])
def test_a_descriptor_that_is_of_something_else_by_now_is_left_alone(tmp_path: Path, now: str) -> None:
    other, its_peer = socket.socketpair()
    with other, its_peer, open(tmp_path / "file", "w") as file:
        fd = {"file": file.fileno(), "socket": other.fileno(), "closed": 1 << 19}[now]
        before = _files()
        for _ in range(3):
            cut(Accepted(fd, 1, "127.0.0.1", "ipv4:127.0.0.1:1"))
        assert _files() == before
        file.write("still open")
