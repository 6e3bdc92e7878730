"""Some of Apache Spark's own test suites, beside sort shuffle. scripts/spark-suites runs them all, in a few hours."""

from __future__ import annotations

import subprocess

import pytest

from bench.harness.spark_driver import ROOT

SUITES = (
    "shuffle.ShuffleDependencySuite",
    "FailureSuite",
    "PartitioningSuite",
    "scheduler.AdaptiveSchedulingSuite",
    "sql.execution.ExchangeSuite",
    "sql.execution.CoalesceShufflePartitionsSuite",
)
TIMEOUT_S = 1800


@pytest.mark.spark
@pytest.mark.timeout(TIMEOUT_S)
def test_some_of_sparks_own_suites_differ_as_expected() -> None:
    command = ["scripts/spark-suites", *SUITES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for suite in SUITES:
        assert f"{suite} flight: {{'PASS': " in done.stdout
