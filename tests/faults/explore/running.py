"""Runs one schedule, in a directory of its own."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.faults.explore import databases
from tests.faults.explore.batch import BatchJob
from tests.faults.explore.cluster import DidNotStart, Hung, Scene
from tests.faults.explore.ledger import Finding
from tests.faults.explore.schedule import Schedule
from tests.faults.explore.spark import run_spark
from tests.faults.explore.streaming_job import run_streaming


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a schedule. `kept` is the directory with its logs and data, if something was wrong; `unchecked` is
    what the oracle did not look at, and why."""

    schedule: Schedule
    findings: tuple[Finding, ...]
    seconds: float
    trouble: dict[str, int]
    kept: str = ""
    unchecked: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        return not self.findings


def run(schedule: Schedule, scratch: Path, keep: bool = True) -> Outcome:
    """Run it to its end; nothing of it is left then but, if something was wrong and `keep` says so, its files."""
    root = Path(tempfile.mkdtemp(prefix=f"seed-{schedule.seed}-", dir=scratch))
    began = time.monotonic()
    outcome = JOBS[schedule.job](schedule, root)
    outcome = replace(outcome, seconds=round(time.monotonic() - began, 2))
    if outcome.right or not keep:
        shutil.rmtree(root, ignore_errors=True)
        return outcome
    return replace(outcome, kept=str(root))


def _served(schedule: Schedule, root: Path) -> Outcome:
    try:
        metadata = databases.fresh() if schedule.topology == "standby" else ""
        with Scene(schedule, root, metadata) as scene:
            if schedule.job == "spark":
                return Outcome(schedule, tuple(run_spark(schedule, scene)), 0.0, {}, unchecked=scene.unchecked)
            job = BatchJob(schedule, scene)
            job.run()
            return Outcome(schedule, tuple(job.findings), 0.0, dict(job.trouble), unchecked=scene.unchecked)
    except (DidNotStart, Hung) as failed:
        return Outcome(schedule, (Finding("start", str(failed)),), 0.0, {})


def _streaming(schedule: Schedule, root: Path) -> Outcome:
    return Outcome(schedule, tuple(run_streaming(schedule, root)), 0.0, {})


JOBS: dict[str, Callable[[Schedule, Path], Outcome]] = {
    "remote": _served,
    "hybrid": _served,
    "pipelined": _streaming,
    "spark": _served,
}
