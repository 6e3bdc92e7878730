"""A second of each kind of flood: what is bounded stays in its bounds, and the application beside it loses nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.floods.kinds import KINDS
from tests.floods.run import Ground, ground

SECONDS = 1.0
DEADLINE = 60.0  # for what was taken to be given back; python -m tests.floods has 10 s for it


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Ground]]:
    """Servers for all kinds that have use for them: each leaves them as it found them, which is a part of the test."""
    made: dict[str, Ground] = {}
    with ExitStack() as stack:

        def of(scene: str) -> Ground:
            if scene not in made:
                made[scene] = stack.enter_context(ground(scene, tmp_path_factory.mktemp(scene)))
            return made[scene]

        yield of


@pytest.mark.parametrize("name", KINDS)
def test_a_flood_takes_no_more_than_its_bound_and_gives_it_back(grounds: Callable[[str], Ground], name: str) -> None:
    if not os.environ.get("FLIGHT_SHUFFLE_FLOODS"):
        pytest.skip("FLIGHT_SHUFFLE_FLOODS=1 runs floods: they want the machine for themselves")
    kind = KINDS[name]
    if kind.unbounded:
        pytest.skip(kind.unbounded)
    if kind.least_seconds > SECONDS:
        pytest.skip(f"it takes {kind.least_seconds:g} s: test_half_open_peers.py has it with a shorter --peer-timeout")
    assert grounds(kind.scene).flood(kind, SECONDS, DEADLINE).wrong == []


def test_there_are_at_least_fifteen_kinds_with_and_without_a_token() -> None:
    tenants = [name for name in KINDS if name.startswith("tenant-")]
    assert len(KINDS) - len(tenants) >= 15
    assert len(tenants) >= 15
