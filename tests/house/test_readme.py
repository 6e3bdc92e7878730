"""The README's programs run as they are printed, but for the server's address."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.harness.server import ServerProcess

ROOT = Path(__file__).parents[2]
ADDRESS = "127.0.0.1:9110"
ROOTS = (".", "facade", "shuffle_api", "transport", "plugins", "remote_service")


def program(containing: str) -> str:
    """The one Python block of the README that contains a text."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    [found] = [block for block in blocks if containing in block]
    assert isinstance(found, str)
    return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", tmp_path / "server.log") as running:
        yield running


def run(text: str, server: ServerProcess, directory: Path) -> str:
    assert ADDRESS in text
    path = directory / "program.py"
    path.write_text(text.replace(ADDRESS, server.control))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / root) for root in ROOTS)}
    done = subprocess.run(
        [sys.executable, path], cwd=directory, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_python_program_counts_the_words(server: ServerProcess, tmp_path: Path) -> None:
    said = run(program("open_plugin"), server, tmp_path)
    counts = ast.literal_eval(said.strip().removeprefix("Counter(").removesuffix(")"))
    assert counts == {"to": 2, "be": 2, "or": 1, "not": 1, "that": 1, "is": 1}
    assert server.status().bytes_pulled > 0


def test_python_program_runs_in_memory_too(server: ServerProcess, tmp_path: Path) -> None:
    text = program("open_plugin")
    in_memory = text.replace(f'"remote", {{"server": "{ADDRESS}"}}', '"memory"')
    assert in_memory != text
    assert "'be': 2" in run(in_memory + f"# {ADDRESS}\n", server, tmp_path)
    assert server.status().bytes_pushed == 0


@pytest.mark.spark
def test_pyspark_program_shuffles_through_the_server(server: ServerProcess, tmp_path: Path) -> None:
    said = run(program("SparkSession"), server, tmp_path)
    assert re.search(r"\|\s+0\|\s+499500000\|", said), said
    assert server.status().bytes_pushed > 0
