"""The job of deploy/compose shuffles through the server that it is given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.harness.server import ServerProcess

ROOT = Path(__file__).parents[2]
ROOTS = ("facade", "shuffle_api", "transport", "plugins", "remote_service")


@pytest.mark.spark
def test_the_job_runs_and_its_sums_are_right(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", tmp_path / "log") as server:
        given = {"SPARK_MASTER": "local[2]", "FLIGHT_SHUFFLE_SERVER": server.control, "DRIVER_HOST": "127.0.0.1"}
        path = os.pathsep.join(str(ROOT / root) for root in ROOTS)
        done = subprocess.run(
            [sys.executable, ROOT / "deploy" / "compose" / "job.py"],
            env={**os.environ, **given, "PYTHONPATH": path},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "5000000 rows summed into 1000 through Flight Shuffle"
        assert server.status().bytes_pushed > 0
