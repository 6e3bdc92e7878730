"""The fault explorer over real processes: a schedule of each kind of job, a bug that is found, and a fresh sample."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.faults.explore.__main__ import main
from tests.faults.explore.exploring import explore, fresh_seed, schedules
from tests.faults.explore.running import run
from tests.faults.explore.schedule import Fault, Schedule

SAMPLE_S = 90.0

pytestmark = pytest.mark.timeout(900)

SNAPSHOTS = (("snapshot-every", "1"),)
KILLS = {
    "worker while it is written to": Schedule(1, "remote", "cluster", (Fault("kill", "half", 1, victim=1),)),
    "master at a commit": Schedule(2, "remote", "cluster", (Fault("kill", "commit", 2, 0.002),), server=SNAPSHOTS),
    "worker while it is read": Schedule(3, "remote", "cluster", (Fault("kill", "first", 0, victim=2),)),
    "server at a commit": Schedule(4, "remote", "server", (Fault("kill", "commit", 1),), server=SNAPSHOTS),
    "server while it merges": Schedule(5, "remote", "server", (Fault("kill", "done", 0, 0.02),), maps=48, records=12),
    "server of hybrid": Schedule(6, "hybrid", "server", (Fault("kill", "half", 1),)),
    "task": Schedule(7, "remote", "server", (Fault("kill task", "commit", 1), Fault("kill task", "half", 4)), races=1),
}


@pytest.mark.parametrize("name", KILLS)
def test_nothing_is_lost_repeated_or_mixed_after_a_kill_of(name: str, tmp_path: Path) -> None:
    outcome = run(KILLS[name], tmp_path)
    assert outcome.right, outcome
    assert "stall" not in {thread.name for thread in threading.enumerate()}  # hundreds would slow a long run down


def test_planted_bug_is_found_and_the_command_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kill = Fault("kill", "committed", 1)
    outcome = run(Schedule(1, "remote", "server", (kill,), bugs=("forget-an-output",)), tmp_path)
    assert "dropped" in {finding.kind for finding in outcome.findings}
    assert Path(outcome.kept).is_dir()


def test_command_runs_seeds_and_says_how_it_went(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--seeds", "1", "--seed", "139", "--jobs", "remote", "--json", str(tmp_path / "report.json")]) == 0
    said = capsys.readouterr().out
    assert "seeds from 139 on" in said
    assert "1 schedules" in said
    assert '"wrong": 0' in (tmp_path / "report.json").read_text()


@pytest.mark.parametrize("wrong", [["--jobs", "nothing"], ["--seeds", "0"], ["--plant", "nothing"], ["--seed", "x"]])
def test_command_refuses_what_it_does_not_know(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(wrong)
    assert refused.value.code == 2
    assert wrong[0] in capsys.readouterr().err


def test_sample_with_fresh_seeds(tmp_path: Path) -> None:
    score = explore(
        schedules(fresh_seed(), ("remote", "hybrid", "pipelined")),
        tmp_path,
        parallel=2,
        more=lambda score: score.seconds < SAMPLE_S,
    )
    assert [str(outcome) for outcome in score.wrong] == []
    assert score.outcomes
