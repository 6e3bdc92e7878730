"""The server process of tests and benchmarks."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from bench.harness.server import ServerProcess


def test_address_that_is_taken_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        release = threading.Timer(5, other.close)
        release.start()
        try:
            with ServerProcess(tmp_path / "data", tmp_path / "server.log", listen=address) as server:
                assert server.control == address
                assert f"cannot listen on {address}" in server.log.read_text()
        finally:
            release.join()
