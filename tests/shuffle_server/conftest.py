"""Fixtures of the server's tests: a real server process per test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.server import ServerProcess
from shuffle_plugins.remote import RemoteShuffle


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", tmp_path / "server.log") as process:
        yield process


@pytest.fixture
def plugin(server: ServerProcess) -> Iterator[RemoteShuffle]:
    with RemoteShuffle({"server": server.control, "timeout": 20, "retry": 20}) as remote:
        yield remote
