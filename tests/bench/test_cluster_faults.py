"""A few rounds of kill -9 in a cluster; `python -m bench.cluster_faults` runs as many as one likes."""

from __future__ import annotations

from bench.cluster_faults import rounds


def test_a_few_rounds_of_kill_9_lose_nothing_and_show_nothing_uncommitted() -> None:
    done = rounds(5, seed=4)
    assert [each for each in done if each.wrong] == []
    assert {each.victim for each in done} == {"worker", "master", "both"}
