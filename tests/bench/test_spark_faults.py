"""bench.spark_faults: one run of each fault, each with the right answer and no map run again that was not lost."""

import json
import subprocess
import sys

import pytest

from bench.spark_driver import ROOT
from bench.spark_faults import FAULTS, Run


def test_run_must_be_right_and_rerun_what_was_lost() -> None:
    assert Run(0, "outputs", "between", 2, 1.0, True, maps_lost=2, maps_rerun=2).as_it_must_be
    assert not Run(0, "outputs", "between", 2, 1.0, True, maps_lost=2, maps_rerun=8).as_it_must_be
    assert not Run(0, "server", "map", 2, 1.0, False, maps_lost=0, maps_rerun=0).as_it_must_be


@pytest.mark.spark
@pytest.mark.timeout(1500)
def test_each_fault_once() -> None:
    command = [sys.executable, "-m", "bench.spark_faults", f"--runs={len(FAULTS)}", "--seed=7"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1400, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["not_as_they_must_be"] == []
    assert [(run["fault"], run["phase"]) for run in report["runs"]] == list(FAULTS)
    assert all(run["right"] for run in report["runs"])
