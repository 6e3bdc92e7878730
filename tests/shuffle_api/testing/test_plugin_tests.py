"""The exam can be failed: each broken plugin fails the test that guards the promise it breaks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from shuffle_api.testing import ShufflePluginTests
from shuffle_api.testing.plugin_tests.records import RecordTests
from tests.shuffle_api.testing.broken_plugins import FOUND_BY, Broken

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def run_session(report: Path, *nodes: str) -> dict[tuple[str, str], str]:
    """Run the tests in a session of its own; by (class, test): "passed", "skipped", or how it failed."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", f"--junitxml={report}"]
    session = subprocess.run([*command, *nodes], cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert report.exists(), session.stdout + session.stderr
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        assert case.find("error") is None, ElementTree.tostring(case)
        failure, skipped = case.find("failure"), case.find("skipped") is not None
        key = case.attrib["classname"].rpartition(".Test")[2], case.attrib["name"]
        outcomes[key] = failure.attrib["message"] if failure is not None else "skipped" if skipped else "passed"
    return outcomes


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """What became of the tests that guard the promises, with the plugins that break them and with `Broken`."""
    exams: list[tuple[type[Broken], str]] = [*FOUND_BY.items(), *((Broken, test) for test in FOUND_BY.values())]
    nodes = [f"{HERE / 'broken_plugins.py'}::Test{plugin.__name__}::{test}" for plugin, test in exams]
    return run_session(tmp_path_factory.mktemp("exam") / "report.xml", *nodes)


@pytest.mark.parametrize("plugin", list(FOUND_BY), ids=lambda plugin: plugin.__name__)
def test_broken_plugin_fails_the_exam(plugin: type[Broken], outcomes: dict[tuple[str, str], str]) -> None:
    assert outcomes[plugin.__name__, FOUND_BY[plugin]] not in ("passed", "skipped")


def test_same_tests_pass_where_nothing_is_broken(outcomes: dict[tuple[str, str], str]) -> None:
    assert {outcomes[Broken.__name__, test] for test in FOUND_BY.values()} == {"passed"}


def test_exam_reads_while_it_writes_where_writers_wait_for_readers(tmp_path: Path) -> None:
    outcomes = run_session(tmp_path / "report.xml", str(HERE / "streaming_plugin.py"))
    assert set(outcomes.values()) == {"passed", "skipped"}
    round_trips = [name for name in vars(RecordTests) if name.startswith("test_")]
    assert {outcomes["StreamingShuffle", test] for test in round_trips} == {"passed"}


def test_exam_has_a_test_for_every_promise_it_is_known_for() -> None:
    tests = [name for name in dir(ShufflePluginTests) if name.startswith("test_")]
    assert len(tests) >= 70
    assert set(FOUND_BY.values()) <= set(tests)


def test_double_and_oracle_work_without_pytest() -> None:
    program = (
        "import sys, shuffle_api.testing as t, shuffle_api.registry, shuffle_api.testing.oracle;"
        "t.MemoryShuffle().close();"
        "print([name for name in ('pytest', 'hypothesis') if name in sys.modules])"
    )
    child = subprocess.run([sys.executable, "-c", program], cwd=ROOT / "shuffle_api", capture_output=True, timeout=240)
    assert child.stdout.split() == [b"[]"], child.stderr


def test_unknown_name_in_the_testing_package_is_an_attribute_error() -> None:
    import shuffle_api.testing

    with pytest.raises(AttributeError, match="no_such_thing"):
        shuffle_api.testing.no_such_thing  # noqa: B018
