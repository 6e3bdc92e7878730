"""Threads are a PeriodicTask or a StreamThread, and only these catch every exception."""

import re

from tests.house.packages import PACKAGES, ROOT

MAKING = re.compile(r"threading\.(Thread|Timer)\(")
BLIND = re.compile(r"except (Exception|BaseException)\b.*noqa: BLE001|^\s*except:", re.MULTILINE)

THREADS = {
    "shuffle_api/shuffle_api/periodic.py",
    "shuffle_api/shuffle_api/testing/plugin_tests/base.py",  # callers of a test
}
SURVIVING = {
    "shuffle_api/shuffle_api/periodic.py",
    "shuffle_api/shuffle_api/testing/plugin_tests/base.py",  # the caller of a test gets it
    "plugins/shuffle_plugins/pipelined/closing.py",  # raised again
}
BENCHMARKS = "transport/shuffle_transport/bench/"


def files_with(pattern: re.Pattern[str]) -> set[str]:
    found = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES.values()
        for path in package.rglob("*.py")
        if pattern.search(path.read_text())
    }
    return {name for name in found if not name.startswith(BENCHMARKS)}


def test_no_other_file_makes_a_thread() -> None:
    assert files_with(MAKING) == THREADS


def test_no_other_file_survives_every_exception() -> None:
    assert files_with(BLIND) == SURVIVING
