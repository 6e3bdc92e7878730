"""Streaming jobs of the fault explorer: tasks and relays killed, frozen and cut off, one schedule of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.explore.running import run
from tests.faults.explore.schedule import Schedule, draw
from tests.faults.explore.streaming_cases import CASES, case_of


def drawn(case: str, count: int) -> list[Schedule]:
    """The first schedules of a case."""
    found: list[Schedule] = []
    seed = 0
    while len(found) < count:
        schedule = draw(seed, ["pipelined"], [1])
        if schedule.case == case:
            found.append(schedule)
        seed += 1
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES)
def test_guarantee_holds_when_tasks_die_or_freeze(case: str, tmp_path: Path) -> None:
    outcome = run(drawn(case, 1)[0], tmp_path)
    assert outcome.right, outcome


@pytest.mark.parametrize("case", CASES)
def test_relay_is_struck_where_there_is_one_and_logs_where_there_are_any(case: str) -> None:
    struck = [{fault.kind for fault in schedule.faults} for schedule in drawn(case, 30)]
    assert all(("relay" in kinds) == case_of(case).relayed for kinds in struck)
    assert ("log" in set().union(*struck)) == case_of(case).logged
    assert "task" in set().union(*struck)
