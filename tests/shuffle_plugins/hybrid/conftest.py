"""A real server process, and scenes in which one process plays driver and tasks, and meets itself in several ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.harness.server import ServerProcess
from shuffle_api.interfaces import OptionValue
from tests.shuffle_plugins.hybrid.scene import Scene

Open = Callable[..., Scene]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root: Path = tmp_path_factory.mktemp("server")
    with ServerProcess(root / "data", root / "log") as process:
        yield process


@pytest.fixture(params=["local", "connected", "relayed"])
def way(request: pytest.FixtureRequest, server: ServerProcess) -> dict[str, OptionValue]:
    """How live readers and writers meet: within the process, at its own port, through the server."""
    ways: dict[str, dict[str, OptionValue]] = {
        "local": {},
        "connected": {"local": False},
        "relayed": {"local": False, "relay": server.data},
    }
    return ways[request.param]


@pytest.fixture
def scene(way: dict[str, OptionValue], server: ServerProcess) -> Iterator[Open]:
    """Opens scenes: `scene(partitions, maps, option=...)`."""
    with ExitStack() as stack:

        def open_scene(partitions: int = 1, maps: int = 1, **options: OptionValue) -> Scene:
            given: dict[str, OptionValue] = {"server": server.control, "timeout": 120.0, "retry": 60.0}
            return stack.enter_context(Scene(partitions, maps, given | way | options))

        yield open_scene
