"""A plugin in a distribution of its own: installed with pip, found by name, through the whole conformance kit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DISTRIBUTION = ("pyproject.toml", "README.md", "folder_shuffle", "exam.py")
TIMEOUT_S = 550
DRIVER = """
import pickle, subprocess, sys
from shuffle_api import known_plugins, open_plugin
assert "folder" in known_plugins() and "remote" in known_plugins()
with open_plugin("folder", {"root": sys.argv[1]}) as plugin, plugin.master("words") as master:
    handle = master.register_shuffle(partitions=2, maps=1)
    subprocess.run([sys.executable, "-c", sys.argv[2]], input=pickle.dumps(handle), check=True, timeout=240)
    with plugin.reader(handle, range(2)) as reader:
        print(sorted(reader))
"""
TASK = """
import pickle, sys
from shuffle_api import MapAttempt, open_plugin
handle = pickle.load(sys.stdin.buffer)
with open_plugin(handle.plugin, {"root": handle.endpoint}).writer(handle, MapAttempt(0, 0)) as writer:
    writer.write(0, b"to be")
    writer.write(1, b"or not")
    writer.commit()
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stranger's checkout, somewhere else, with the distribution installed into its directory `site`."""
    checkout = tmp_path_factory.mktemp("stranger")
    for name in DISTRIBUTION:
        copy = shutil.copytree if (HERE / name).is_dir() else shutil.copyfile
        copy(HERE / name, checkout / name)
    run(
        checkout,
        ["-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation", "--target", "site", "."],
    )
    shutil.rmtree(checkout / "folder_shuffle")  # what is installed has to do
    return checkout


def run(checkout: Path, arguments: Sequence[str]) -> str:
    """Run Python in the checkout with what is installed there; what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "site")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_strangers_plugin_passes_the_conformance_kit(checkout: Path) -> None:
    said = run(checkout, ["-m", "pytest", "-q", "-p", "no:cacheprovider", "exam.py"])
    assert re.search(r"\b[1-9]\d+ passed", said), said
    assert "failed" not in said


def test_program_opens_the_plugin_by_name_and_so_do_its_tasks(checkout: Path) -> None:
    assert run(checkout, ["-c", DRIVER, str(checkout / "data"), TASK]) == "[(0, b'to be'), (1, b'or not')]\n"
