"""Real processes killed and frozen, the outcome compared with an oracle: a few of `bench.streaming.faults`' runs."""

from __future__ import annotations

import pytest

from bench.streaming import faults
from bench.streaming.faults_plan import CASES, case_of, faults_of


@pytest.mark.timeout(faults.DEADLINE + 60)
@pytest.mark.parametrize(
    ("case", "seed"),
    [
        ("at_most_once", 3),
        ("at_least_once", 7),
        ("aligned", 4),
        ("unaligned", 5),
        ("aligned_with_timeout", 7),
        ("logged_aligned", 102),
        ("logged_unaligned", 107),
        ("relayed_at_most_once", 1),
        ("relayed_at_least_once", 0),
        ("relayed_aligned", 4),
        ("relayed_unaligned", 4),
    ],
)
def test_guarantee_holds_when_tasks_die_or_freeze(case: str, seed: int) -> None:
    outcome = faults.run(case, seed)
    assert not outcome.wrong, outcome


def test_faults_of_a_seed_are_always_the_same() -> None:
    assert [faults_of("aligned", seed) for seed in range(20)] == [faults_of("aligned", seed) for seed in range(20)]
    assert len({faults_of("aligned", seed) for seed in range(20)}) > 15


@pytest.mark.parametrize("case", CASES)
def test_relay_is_struck_where_there_is_one(case: str) -> None:
    struck = [{fault.kind for fault in faults_of(case, seed)} for seed in range(50)]
    assert all(("relay" in kinds) == case_of(case).relayed for kinds in struck)
    assert {"producer", "consumer"} <= set().union(*struck)
