"""A peer that vanishes without a word is found, at both endpoints, whether something is under way or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.floods.hostile import Press
from tests.floods.scene import one_server
from tests.floods.vanished import EACH, vanish
from tests.network_namespace import why_not

PEER_TIMEOUT = 6  # seconds; a minute if nothing is said, for which python -m tests.floods --kinds vanished waits
DEADLINE = 60.0


def test_connections_of_a_peer_whose_link_is_down_are_gone_after_the_time_for_peers(tmp_path: Path) -> None:
    if missing := why_not():
        pytest.skip(f"this needs a network namespace: {missing}")
    with one_server(tmp_path, "--peer-timeout", str(PEER_TIMEOUT)) as scene:
        before = scene.usage().files
        seen: list[int] = []

        def over() -> bool:
            seen.append(scene.usage().files)
            return (max(seen) >= seen[-1] + 4 * EACH and seen[-1] <= before) or len(seen) > DEADLINE / 0.2

        vanish(Press(scene.target, over))
        assert max(seen) >= seen[-1] + 4 * EACH
        assert seen[-1] <= before
