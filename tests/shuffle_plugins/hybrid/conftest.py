"""A real server process, and scenes in which one process plays driver and tasks, connected within or over Flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.server import ServerProcess
from shuffle_api.interfaces import OptionValue
from tests.shuffle_plugins.hybrid.scene import Scene

Open = Callable[..., Scene]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root: Path = tmp_path_factory.mktemp("server")
    with ServerProcess(root / "data", root / "log") as process:
        yield process


@pytest.fixture(params=[True, False], ids=["local", "connected"])
def local(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def scene(local: bool, server: ServerProcess) -> Iterator[Open]:
    """Opens scenes: `scene(partitions, maps, option=...)`."""
    with ExitStack() as stack:

        def open_scene(partitions: int = 1, maps: int = 1, **options: OptionValue) -> Scene:
            given: dict[str, OptionValue] = {"server": server.control, "local": local, "timeout": 120.0, "retry": 60.0}
            return stack.enter_context(Scene(partitions, maps, given | options))

        yield open_scene
