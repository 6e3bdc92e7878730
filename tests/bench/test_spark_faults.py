"""bench.spark_faults: one run of each fault, each with the right answer and no map run again that was not lost."""

import json
import subprocess
import sys

import pytest

from bench import spark_faults_cluster, spark_faults_server
from bench.spark_driver import ROOT
from bench.spark_faults_run import Run, others, reruns


def test_run_must_be_right_and_rerun_what_was_lost() -> None:
    assert Run(0, "outputs", "between", 2, 1.0, True, maps_lost=2, maps_rerun=2).as_it_must_be
    assert not Run(0, "outputs", "between", 2, 1.0, True, maps_lost=2, maps_rerun=8).as_it_must_be
    assert not Run(0, "outputs", "between", 2, 1.0, True, maps_lost=2, maps_rerun=2, others_rerun=1).as_it_must_be
    assert not Run(0, "server", "map", 2, 1.0, False, maps_lost=0, maps_rerun=0).as_it_must_be


def test_maps_that_ran_again_are_told_from_those_that_had_to() -> None:
    once = [(10 + index, index) for index in range(8)]
    assert reruns(once) == []
    assert reruns([*once, (18, 5), (19, 5), (20, 7)]) == [5, 5, 7]
    assert others([5, 7], [5, 7]) == 0
    assert others([5, 7], [5, 5, 7]) == 1
    assert others([5, 7], [5, 6]) == 1


@pytest.mark.spark
@pytest.mark.timeout(2000)
@pytest.mark.parametrize(
    ("options", "faults"),
    [([], spark_faults_cluster.FAULTS), (["--one-server"], spark_faults_server.FAULTS)],
    ids=["cluster", "one server"],
)
def test_each_fault_once(options: list[str], faults: tuple[tuple[str, str], ...]) -> None:
    command = [sys.executable, "-m", "bench.spark_faults", f"--runs={len(faults)}", "--seed=7", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1900, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["not_as_they_must_be"] == []
    assert [(run["fault"], run["phase"]) for run in report["runs"]] == list(faults)
    assert all(run["right"] for run in report["runs"])
