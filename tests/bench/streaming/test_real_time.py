"""The benchmark of Spark's real-time mode runs, and both sides give the same rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.streaming import real_time


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(1500)
def test_both_sides_answer_every_row(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    arguments = ["--queries", "windows", "--rate", "100", "--seconds", "1", "--warm", "1", "--rounds", "1"]
    assert real_time.main([*arguments, "--json", str(file)]) == 0  # it raises when the rows differ
    sides = json.loads(file.read_text())["queries"]["windows"]
    assert sides["flight"]["p50_us"] > 0
    assert sides["ratio"]["p50_us"] == pytest.approx(sides["flight"]["p50_us"] / sides["spark"]["p50_us"], abs=0.01)
