"""A leader that fails in the middle of a job; `python -m tests.faults.failover` has 50 runs, and limits of time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.faults.failover import ENDS_WITH, Plan, Report, complaints, draw, run
from tests.shuffle_server.master.database import Database, running_database


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with running_database() as running:
        yield running


def first_with(fault: str, phase: str) -> Plan:
    return next(plan for plan in map(draw, count(1)) if (plan.fault, plan.phase) == (fault, phase))


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("fault", "phase"), [("kill", "write"), ("session", "read")])
def test_the_other_master_takes_over_and_nothing_is_lost(database: Database, fault: str, phase: str) -> None:
    report = run(first_with(fault, phase), database)
    assert report.wrong == []
    assert report.probes > 0


def test_a_seed_draws_the_same_plan_each_time_and_all_faults_are_drawn() -> None:
    plans = [draw(seed) for seed in range(1, 51)]
    assert plans == [draw(seed) for seed in range(1, 51)]
    assert {plan.fault for plan in plans} == set(ENDS_WITH)
    assert {plan.phase for plan in plans} == {"write", "read"}


def test_a_takeover_that_takes_too_long_is_wrong() -> None:
    assert complaints(Report(1, "kill", "read", 9.9, 10, 12.0, [])) == []
    assert "11 s" in complaints(Report(1, "kill", "read", 11.0, 10, 12.0, []))[0]
