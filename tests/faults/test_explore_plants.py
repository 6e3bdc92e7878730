"""Planted bugs: each has schedules that can meet it, and counts as found only where all is right without it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.explore import planted, plants
from tests.faults.explore.__main__ import main
from tests.faults.explore.ledger import Finding
from tests.faults.explore.running import Outcome
from tests.faults.explore.schedule import Schedule


@pytest.mark.parametrize("bug", planted.BUGS)
def test_each_bug_has_schedules_with_faults_for_each_seed(bug: str) -> None:
    drawn = [plants.plan(bug, seed) for seed in range(20)]
    assert drawn == [plants.plan(bug, seed) for seed in range(20)]
    assert all(schedule.faults and schedule.bugs == (bug,) for schedule in drawn)
    assert len({schedule.faults for schedule in drawn}) > 1


@pytest.mark.timeout(400)
def test_command_finds_a_bug_and_is_right_without_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    report = tmp_path / "planted.json"
    assert main(["--plant", "forget-an-output", "--seed", "10", "--parallel", "2", "--json", str(report)]) == 0
    said = capsys.readouterr().out
    assert "forget-an-output: found after" in said
    assert "right without it; with it: dropped" in said
    [row] = json.loads(report.read_text())["planted"]
    assert row["seed"] >= 10
    assert row["wrong_without_it"] == []


def wrong_always(schedule: Schedule, scratch: Path, keep: bool = True) -> Outcome:
    return Outcome(schedule, (Finding("lost", "a record"),), 0.0, {})


def test_schedule_that_is_wrong_without_the_bug_proves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in ("exploring", "plants"):
        monkeypatch.setattr(f"tests.faults.explore.{module}.run", wrong_always)
    hunt = plants.hunt("skip-crc", 3, tmp_path, parallel=1, only=True)
    assert hunt.found is None
    assert [outcome.schedule.seed for outcome in hunt.unsound] == [3]
    assert hunt.row()["wrong_without_it"] == [3]
