"""A peer that vanishes without a word is found, at both endpoints, whether something is under way or not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.floods.hostile import Press
from tests.floods.scene import Scene, one_server
from tests.floods.vanished import EACH, vanish
from tests.network_namespace import why_not

PEER_TIMEOUT = 6  # seconds; a minute if nothing is said, for which python -m tests.floods --kinds vanished waits
DEADLINE = 60.0
LOOKS = 10


def files_at_rest(scene: Scene) -> int:
    """The least of some looks: a server has one or another open for a moment."""
    seen = []
    for _ in range(LOOKS):
        seen.append(scene.usage().files)
        time.sleep(0.1)
    return min(seen)


def test_connections_of_a_peer_whose_link_is_down_are_gone_after_the_time_for_peers(tmp_path: Path) -> None:
    if missing := why_not():
        pytest.skip(f"this needs a network namespace: {missing}")
    with one_server(tmp_path, "--peer-timeout", str(PEER_TIMEOUT)) as scene:
        before = files_at_rest(scene)
        seen: list[int] = []

        def over() -> bool:
            seen.append(scene.usage().files)
            return (max(seen) >= before + 4 * EACH and seen[-1] <= before) or len(seen) > DEADLINE / 0.2

        vanish(Press(scene.target, over))
        assert max(seen) >= before + 4 * EACH
        assert seen[-1] <= before
