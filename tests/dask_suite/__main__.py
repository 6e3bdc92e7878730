"""dask's tests of its shuffle with ours in its place: ``python -m tests.dask_suite DIRECTORY``.

DIRECTORY is a checkout of dask's `distributed`, best at the installed version. Prints a table in Markdown: each test
passed, failed, or not applicable and why. Fails if one failed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pytest

TESTS = "distributed/shuffle/tests/test_shuffle.py"
SECONDS = 300


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.dask_suite", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("directory", type=Path, help="a checkout of distributed")
    parser.add_argument("-k", default="", metavar="EXPRESSION", help="which tests, as pytest takes it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dask-suite-") as scratch:
        report = Path(scratch) / "report.xml"
        pytest.main([*arguments(options.directory, report), "-k", options.k])
        outcomes = read(report)
    print(table(outcomes))
    return int("failed" in {outcome for outcome, _ in outcomes.values()} or not outcomes)


def arguments(directory: Path, report: Path) -> list[str]:
    """Of pytest: nothing of the project's own configuration."""
    return [
        "-q",
        *("-p", "tests.dask_suite.plugin", "-p", "no:cacheprovider", "-c", "/dev/null", "--noconftest"),
        *("--rootdir", str(directory), "--import-mode=importlib", f"--timeout={SECONDS}", f"--junitxml={report}"),
        *("--dask-source", str(directory), str(directory / TESTS)),
    ]


def read(report: Path) -> dict[str, tuple[str, str]]:
    """Of each test: passed, failed or not applicable; and why."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        outcome, why = "passed", ""
        for child in case:
            if child.tag == "skipped":
                outcome, why = "not applicable", child.get("message", "")
            elif child.tag in ("failure", "error"):
                outcome, why = "failed", child.get("message", "").split("\n")[0]
        found[case.get("name", "")] = outcome, why
    return found


def table(outcomes: dict[str, tuple[str, str]]) -> str:
    """Markdown."""
    count = Counter(outcome for outcome, _ in outcomes.values())
    lines = [f"| distributed {version('distributed')} | result | |", "|---|---|---|"]
    lines += [f"| `{name}` | {outcome} | {why} |" for name, (outcome, why) in outcomes.items()]
    return "\n".join([*lines, "", ", ".join(f"{number} {outcome}" for outcome, number in count.items())])


if __name__ == "__main__":
    sys.exit(main())
