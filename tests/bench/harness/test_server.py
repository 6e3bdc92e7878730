"""The server process of tests and benchmarks."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from bench.harness.cluster import wait_until
from bench.harness.server import ServerProcess


def test_address_that_is_taken_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.touch()
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"

        def release() -> None:
            wait_until(lambda: f"cannot listen on {address}" in log.read_text(), "the server met the address")
            other.close()

        thread = threading.Thread(target=release, name="release")
        thread.start()
        try:
            with ServerProcess(tmp_path / "data", log, listen=address) as server:
                assert server.control == address
                assert f"cannot listen on {address}" in log.read_text()
        finally:
            thread.join()
