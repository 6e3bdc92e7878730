"""A worker takes pushed messages in memory that was freed before, not in zeroed pages of the system."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tests.page_faults import keeps_freed_memory

SERVER = """
from shuffle_server.options import ServerOptions
from shuffle_server.server import Server
server = Server(ServerOptions(data_dir={directory!r}, listen="127.0.0.1:0"))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_a_worker_keeps_it(tmp_path: Path) -> None:
    assert keeps_freed_memory(SERVER.format(directory=str(tmp_path / "data")))
