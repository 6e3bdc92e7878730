"""The demo as a program: its exit status, what it prints, and what it leaves behind (nothing)."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from bench.harness.cluster import wait_until
from tests.processes import processes_that_mention

ROOT = Path(__file__).parents[3]
ROOTS = (".", "shuffle_api", "transport", "plugins", "remote_service")
# A shell has what it runs in the background ignore them, and so would the demo.
HEEDS_INTERRUPTS = ("env", "--default-signal=INT")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / root) for root in ROOTS)}


def demo(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [*HEEDS_INTERRUPTS, sys.executable, "-m", "tools.demo", *map(str, arguments)]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


@pytest.fixture
def own_input(tmp_path: Path) -> Path:
    """A parquet table with awkward columns, and a CSV file that shares one of them."""
    chosen = random.Random(7)
    rows = 4000
    table = pa.table(
        {
            "town": [chosen.choice(["Bonn", "Köln", None]) for _ in range(rows)],
            "a `b`.c": [chosen.gauss(0, 1e9) for _ in range(rows)],
            "big": [2**62] * rows,
            "list": [[1, 2]] * rows,
            "nan": [float("nan") if number % 7 == 0 else float(number) for number in range(rows)],
        }
    )
    directory = tmp_path / "input"
    directory.mkdir()
    parquet.write_table(table, directory / "sales.parquet")
    (directory / "towns.csv").write_text("town,people\nBonn,330000\nKöln,1080000\n")
    return directory


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(1500)
def test_demo_runs_the_users_tables_through_both_shuffles(own_input: Path, scratch: Path) -> None:
    process = demo("--input", own_input, "--scratch", scratch, "--json", "--memory", "1g")
    said, progress = process.communicate(timeout=1400)
    assert process.returncode == 0, progress
    document = json.loads(said)
    assert document["equal"] is True
    assert document["problems"] == []
    kinds = [query["query"] for query in document["queries"]]
    assert any(kind.startswith("sales with towns: joined on town") for kind in kinds)
    assert sorted({kind.split(": ")[1].split()[0] for kind in kinds}) == [
        "grouped",
        "joined",
        "repartitioned",
        "sorted",
    ]
    assert all(query["bytes_pushed"] > 0 for query in document["queries"] if query["query"].startswith("sales"))
    assert list(scratch.iterdir()) == []
    # A JVM that was killed is gone from the process table a moment later.
    wait_until(lambda: processes_that_mention(scratch) == [], "its processes are gone")


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_demo_that_is_interrupted_leaves_nothing(own_input: Path, scratch: Path) -> None:
    process = demo("--input", own_input, "--scratch", scratch, "--memory", "1g")
    assert process.stderr is not None
    deadline = time.monotonic() + 300
    for line in process.stderr:
        if line.startswith("starting two Spark sessions") or time.monotonic() > deadline:
            break
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert list(scratch.iterdir()) == []
    # A JVM that was killed is gone from the process table a moment later.
    wait_until(lambda: processes_that_mention(scratch) == [], "its processes are gone")


def test_demo_says_what_is_wrong_with_its_input(tmp_path: Path, scratch: Path) -> None:
    process = demo("--input", tmp_path / "nowhere", "--scratch", scratch)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "nowhere does not exist" in said
    assert "Traceback" not in said
    assert list(scratch.iterdir()) == []
