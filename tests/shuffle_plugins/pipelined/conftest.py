"""A plugin in this process, its reader and writers connected within it, over Flight, or through a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from shuffle_api.interfaces import OptionValue
from tests.relay_process import RelayProcess
from tests.shuffle_plugins.pipelined.scene import Scene

Open = Callable[..., Scene]


@pytest.fixture(scope="session")
def shared_relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    with RelayProcess(tmp_path_factory.mktemp("relay")) as process:
        yield process


@pytest.fixture(params=["local", "connected"])
def reach(request: pytest.FixtureRequest) -> str:
    """How tasks reach each other; a module that overrides this may say "relayed" as well."""
    return str(request.param)


@pytest.fixture
def scene(reach: str, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens scenes: `scene(partitions, maps, option=...)`."""
    given: dict[str, OptionValue] = {"local": reach == "local", "timeout": 120.0}
    if reach == "relayed":
        given["relay"] = request.getfixturevalue("shared_relay").address
    with ExitStack() as stack:

        def open_scene(partitions: int = 1, maps: int = 1, **options: OptionValue) -> Scene:
            return stack.enter_context(Scene(partitions, maps, {**given, **options}))

        yield open_scene
