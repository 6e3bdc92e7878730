"""Jobs of Spark of the fault explorer: each fault once; answers are right, and only lost maps run again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.explore.running import run
from tests.faults.explore.schedule import SPARK_FAULTS, Fault, Schedule
from tests.faults.explore.spark import close_spark
from tests.faults.explore.spark_run import Run, others, reruns


def test_run_must_be_right_and_rerun_what_was_lost() -> None:
    assert Run(True, maps_lost=2, maps_rerun=2).as_it_must_be
    assert not Run(True, maps_lost=2, maps_rerun=8).as_it_must_be
    assert not Run(True, maps_lost=2, maps_rerun=2, others_rerun=1).as_it_must_be
    assert not Run(False, maps_lost=0, maps_rerun=0).as_it_must_be


def test_maps_that_ran_again_are_told_from_those_that_had_to() -> None:
    once = [(10 + index, index) for index in range(8)]
    assert reruns(once) == []
    assert reruns([*once, (18, 5), (19, 5), (20, 7)]) == [5, 5, 7]
    assert others([5, 7], [5, 7]) == 0
    assert others([5, 7], [5, 5, 7]) == 1
    assert others([5, 7], [5, 6]) == 1


@pytest.fixture
def clusters() -> Iterator[None]:
    yield
    close_spark()


@pytest.mark.spark
@pytest.mark.timeout(2000)
@pytest.mark.parametrize(
    ("topology", "case"), [pytest.param("cluster", "by file", marks=pytest.mark.nightly), ("server", "server")]
)
def test_each_fault_once(topology: str, case: str, tmp_path: Path, clusters: None) -> None:
    faults = [Fault(kind, phase, 2, victim=1) for kind, phase in SPARK_FAULTS[topology]]
    for fault in faults:
        outcome = run(Schedule(7, "spark", topology, (fault,), case=case), tmp_path)
        assert outcome.right, outcome
