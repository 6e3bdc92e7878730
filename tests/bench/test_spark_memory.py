"""bench.spark_memory: a tiny sweep reports what docs/benchmarks/README.md describes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.harness.spark_driver import ROOT
from bench.spark_memory import table

TIMEOUT_S = 900
POINT = {"cores": 2, "memory": "1g", "partitions": 4}


def report(*points: dict[str, object]) -> dict[str, object]:
    return {"points": [{**POINT, **point} for point in points]}


def test_table_tells_a_failure_from_a_ratio() -> None:
    seconds = {"sort": [2.0, 4.0, 3.0], "flight": [3.0]}
    fine: dict[str, object] = {"failed": {}, "seconds": seconds, "ratio": 1.0, "bytes_ratio": 0.5}
    failed: dict[str, object] = {"failed": {"flight": "why"}, "seconds": seconds, "ratio": None, "bytes_ratio": None}
    lines = table(report(fine, failed)).splitlines()
    assert lines[2:] == ["| 2 | 1g | 4 | 3.00 s | 3.00 s | 1.00 | 0.50 |", "| 2 | 1g | 4 | 3.00 s | failed |  |  |"]


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(TIMEOUT_S)
def test_sweep_measures_both_sides_at_each_point(tmp_path: Path) -> None:
    work = ["--point=2:1g:4", "--rows=1003", "--rounds=1", "--warm-up=0"]
    files = [f"--json={tmp_path / 'r.json'}", f"--scratch={tmp_path}"]
    command = [sys.executable, "-m", "bench.spark_memory", *work, *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    [point] = json.loads((tmp_path / "r.json").read_text())["points"]
    assert {name: point[name] for name in POINT} == POINT
    assert point["failed"] == {}
    assert all(point["written"].values())
    assert point["ratio"] > 0
    assert "| 2 | 1g | 4 |" in done.stderr
    assert done.stdout == (tmp_path / "r.json").read_text()
