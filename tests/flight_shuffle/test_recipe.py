"""The program for process pools in docs/api.md, as a user runs it: as a file, beside a server."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from bench.harness.server import ServerProcess
from tests.shuffle_api.test_docs import PROGRAMS


def test_the_program_for_process_pools_counts_each_row_once(tmp_path: Path) -> None:
    [text] = [program for program in PROGRAMS if "ProcessPoolExecutor" in program]
    program = tmp_path / "program.py"
    program.write_text(text)
    with ServerProcess(tmp_path / "data", tmp_path / "log") as server:
        done = subprocess.run(
            [sys.executable, str(program), server.control],
            capture_output=True,
            text=True,
            timeout=240,
            env={"PYTHONPATH": ":".join(sys.path)},
        )
    assert done.returncode == 0, done.stderr
    rows = [row for line in done.stdout.splitlines() for row in ast.literal_eval(line)]
    assert {row["city"]: row["sold_sum"] for row in rows} == {"Oslo": 4, "Rome": 8, None: 6}
    assert len(rows) == 3
