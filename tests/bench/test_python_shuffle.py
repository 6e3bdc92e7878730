"""bench.python_shuffle: a small run of all sides reports what docs/benchmarks/README.md describes."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from bench.harness.spark_driver import ROOT
from bench.python_shuffle.tasks import Digest, digest

ROWS, ROUNDS = 20_000, 2


def test_digests_of_partitions_add_up_and_show_a_key_in_two_of_them() -> None:
    table = pa.table({"id": [1, 2, 3], "k": [7, 7, 8], "x": [0.5, 1.5, 2.5], "s": ["a", "bc", "def"]})
    assert digest(table) == Digest(rows=3, ids=6, key_sum=22, characters=6, keys=2)
    assert digest(table.slice(0, 2)) + digest(table.slice(2)) == digest(table)
    assert digest(table.slice(0, 1)) + digest(table.slice(1)) != digest(table)


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(1500)
def test_small_run_reports_all_sides(tmp_path: Path) -> None:
    given = [f"--rows={ROWS}", f"--rounds={ROUNDS}", "--partitions=8", "--memory=1g", f"--json={tmp_path / 'out.json'}"]
    command = [sys.executable, "-m", "bench.python_shuffle", *given, f"--input={tmp_path}", f"--scratch={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1400, check=True)
    report = json.loads(done.stdout)
    assert report == json.loads((tmp_path / "out.json").read_text())
    assert report["checked"]["rows"] == ROWS
    assert report["bytes"] == ROWS * 88
    compared = {"flight": {"flight_wire", "dask"}, "flight_wire": {"dask"}, "flight_parquet": {"spark"}}
    assert {name: set(others) for name, others in report["times_as_fast_as"].items()} == compared
    for name, processes in {
        "flight": {"tasks", "server"},
        "flight_wire": {"tasks", "server"},
        "flight_parquet": {"tasks", "server"},
        "dask": {"workers", "scheduler"},
        "spark": {"jvm"},
    }.items():
        side = report["sides"][name]
        assert len(side["seconds"]) == ROUNDS
        assert set(side["median_cpu_s"]) == processes
        assert side["gib_s"] > 0
    assert not list(tmp_path.glob("python-shuffle-*"))  # the scratch directory is gone
