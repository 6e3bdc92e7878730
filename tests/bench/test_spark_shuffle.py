"""bench.spark_shuffle: its input is reproducible, and a small run reports what docs/benchmarks/README.md describes."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bench import spark_shuffle_job as job
from bench.harness.spark_driver import ROOT

ROWS, ROUNDS = 20_000, 2


def test_input_is_the_same_each_time_and_has_all_rows(tmp_path: Path) -> None:
    tables = []
    for name in ("one", "other"):
        job.write_input(tmp_path / name, 1_000)
        tables.append(pq.read_table(tmp_path / name))
    assert tables[0].equals(tables[1])
    assert sorted(tables[0]["id"].to_pylist()) == list(range(1_000))
    assert {len(text) for text in tables[0]["s"].to_pylist()} == {job.TEXT}
    assert len(set(tables[0]["s"].to_pylist())) == 1_000


@pytest.mark.spark
@pytest.mark.timeout(1500)
def test_small_run_reports_both_sides(tmp_path: Path) -> None:
    given = [f"--rows={ROWS}", f"--rounds={ROUNDS}", "--warm-up=1", "--partitions=8", "--memory=1g"]
    given += [f"--json={tmp_path / 'out.json'}"]
    command = [sys.executable, "-m", "bench.spark_shuffle", *given, f"--input={tmp_path}", f"--scratch={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1400, check=True)
    report = json.loads(done.stdout)
    assert report == json.loads((tmp_path / "out.json").read_text())
    assert report["rows_checked"] == ROWS
    assert report["bytes"]["shuffled"]["sort"] > 0
    assert report["bytes"]["pushed"] >= report["bytes"]["shuffled"]["flight"] * ROUNDS
    assert len(report["ratios"]) == ROUNDS
    for name, processes in {"sort": {"jvm"}, "flight": {"jvm", "server"}}.items():
        side = report["sides"][name]
        assert len(side["seconds"]) == ROUNDS
        assert set(side["median_cpu_s"]) == processes
        map_stage, reduce_stage = side["stages"]
        assert map_stage["shuffle_write_bytes"] == reduce_stage["shuffle_read_bytes"] > 0
        assert reduce_stage["tasks"] == 8
    assert not list(tmp_path.glob("spark-shuffle-*"))  # the scratch directory is gone
