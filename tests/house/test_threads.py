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

JAVA = ROOT / "plugins/spark/src"
JAVA_STARTING = re.compile(r"\.(execute|submit|invokeA\w+|schedule\w*)\(|new (Timer|Thread)\(|\w+Async\(")
JAVA_BLIND = re.compile(r"catch \((final )?Throwable\b")
JAVA_TASK = "PeriodicTask.java"
JAVA_FACTORY = "DaemonThreads.java"  # makes the threads of the executors


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


def java_files_with(pattern: re.Pattern[str]) -> set[str]:
    sources = [path for path in JAVA.rglob("*.java") if "test" not in path.relative_to(JAVA).parts]
    assert sources
    return {path.name for path in sources if pattern.search(path.read_text())}


def test_no_other_java_class_starts_work_on_a_thread() -> None:
    # Elsewhere what such work throws is lost: a timer drops it, and nothing answers those that wait for the work.
    assert java_files_with(JAVA_STARTING) == {JAVA_TASK, JAVA_FACTORY}


def test_no_other_java_class_survives_every_exception() -> None:
    assert java_files_with(JAVA_BLIND) == {JAVA_TASK}
