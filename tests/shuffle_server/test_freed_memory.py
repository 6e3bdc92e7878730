"""A worker takes pushed messages in memory that was freed before, not in zeroed pages of the system."""

from __future__ import annotations

from pathlib import Path

from tests.page_faults import keeps_freed_memory, only_glibc

SERVER = """
from shuffle_server.options import ServerOptions
from shuffle_server.server import Server
server = Server(ServerOptions(data_dir={directory!r}, listen="127.0.0.1:0"))
"""


@only_glibc
def test_a_worker_keeps_it(tmp_path: Path) -> None:
    assert keeps_freed_memory(SERVER.format(directory=str(tmp_path / "data")))
