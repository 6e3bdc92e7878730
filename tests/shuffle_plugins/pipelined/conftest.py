"""A plugin in this process, its reader and writers connected within it or over Flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from shuffle_api.interfaces import OptionValue
from tests.shuffle_plugins.pipelined.scene import Scene

Open = Callable[..., Scene]


@pytest.fixture(params=[True, False], ids=["local", "connected"])
def local(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def scene(local: bool) -> Iterator[Open]:
    """Opens scenes: `scene(partitions, maps, option=...)`."""
    with ExitStack() as stack:

        def open_scene(partitions: int = 1, maps: int = 1, **options: OptionValue) -> Scene:
            return stack.enter_context(Scene(partitions, maps, {"local": local, "timeout": 30.0, **options}))

        yield open_scene
