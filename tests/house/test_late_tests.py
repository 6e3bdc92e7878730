"""scripts/late-tests, on the report of a real run."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "late-tests"

LATE = """
import time, pytest

def test_good():
    pass

def test_waits_in_vain():
    deadline = time.monotonic()
    while True:
        assert time.monotonic() < deadline, "it does not come to that"

class TestOfAClass:
    @pytest.mark.parametrize("way", ["a/b-1"])
    @pytest.mark.timeout(0.2)
    def test_hangs(self, way):
        time.sleep(60)

@pytest.fixture
def unreachable():
    raise TimeoutError("no answer")

def test_whose_fixture_is_late(unreachable):
    pass
"""

WRONG = """
def test_wrong():
    written = [1, 2]
    assert written == [1, 2, 2], "repeated"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_late.py").write_text(LATE)
    return tmp_path


def late_tests(project: Path) -> subprocess.CompletedProcess[str]:
    report = project / "junit.xml"
    pytest_run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir=."]
    subprocess.run([*pytest_run, f"--junitxml={report}", "tests"], cwd=project, capture_output=True, timeout=300)
    return subprocess.run(
        [sys.executable, SCRIPT, report], cwd=project, capture_output=True, text=True, timeout=60, check=False
    )


def test_those_that_ran_out_of_time_are_named(project: Path) -> None:
    found = late_tests(project)
    assert found.returncode == 0
    assert found.stdout.splitlines() == [
        "tests/test_late.py::test_waits_in_vain",
        "tests/test_late.py::TestOfAClass::test_hangs[a/b-1]",
        "tests/test_late.py::test_whose_fixture_is_late",
    ]


def test_a_wrong_answer_is_not_tried_again(project: Path) -> None:
    (project / "tests" / "test_wrong.py").write_text(WRONG)
    found = late_tests(project)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == "1 tests failed, 3 ran out of time\n"


def test_many_that_are_late_are_a_fault(project: Path) -> None:
    (project / "tests" / "test_more.py").write_text(LATE)
    assert late_tests(project).returncode == 1
