"""The `remote` plugin against a real server process: the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.server import ServerProcess
from shuffle_api.testing import ShufflePluginTests
from shuffle_plugins.remote import RemoteShuffle


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root: Path = tmp_path_factory.mktemp("server")
    with ServerProcess(root / "data", root / "log") as process:
        yield process.control


class TestRemoteShuffle(ShufflePluginTests):
    @pytest.fixture
    def plugin(self, address: str) -> Iterator[RemoteShuffle]:
        with RemoteShuffle({"server": address, "timeout": 30, "retry": 5}) as plugin:
            yield plugin
