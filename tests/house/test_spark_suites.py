"""tests.spark_suites: what of Spark's own suites may differ, and that a run finds what does."""

from pathlib import Path

import pytest

from tests.spark_suites.lines import line_of
from tests.spark_suites.outcomes import Difference, differences, failed, judge, outcomes, read_expected

MOST_EXPECTED = 30  # tests; several suites inherit some of them


def test_every_expected_difference_has_a_cause_with_a_reason() -> None:
    reasons, causes = read_expected()
    assert set(causes.values()) == set(reasons)
    assert 0 < len({test for _, test in causes}) <= MOST_EXPECTED


def test_a_cause_without_a_reason_is_named(tmp_path: Path) -> None:
    file = tmp_path / "expected.txt"
    file.write_text("# known: because\nknown\tASuite\tone\nother\tASuite\ttwo\n")
    with pytest.raises(ValueError, match="the cause other of ASuite has no reason"):
        read_expected(file)


def test_outcomes_are_the_last_of_each_test(tmp_path: Path) -> None:
    tsv = tmp_path / "s.tsv"
    lines = ["START\tS\ta\t0\t", "PASS\tS\ta\t5\t", "START\tS\tb\t0\t", "FAIL\tS\tb\t5\twrong", "START\tS\tc\t0\t"]
    tsv.write_text("\n".join(lines))
    found = outcomes(tsv)
    assert found == {"a": ("PASS", ""), "b": ("FAIL", "wrong"), "c": ("UNFINISHED", "")}
    assert failed(found) == ["b", "c"]
    assert outcomes(tmp_path / "none.tsv") == {}


def test_what_fails_with_sort_shuffle_too_is_no_difference() -> None:
    here = {"a": ("PASS", ""), "b": ("FAIL", "wrong"), "c": ("FAIL", "wrong"), "d": ("IGNORE", "")}
    [found] = differences("S", "flight", {"b": ("PASS", ""), "c": ("FAIL", "wrong")}, here)
    assert found == Difference("S", "b", "flight", "PASS", "FAIL", "wrong")


def test_judge_names_what_is_not_expected_and_what_differs_no_more() -> None:
    found = [Difference("S", test, "flight", "PASS", "FAIL") for test in ("known", "new")]
    expected = {("S", "known"): "x", ("S", "fixed"): "x", ("Other", "did not run"): "x"}
    unexpected, gone = judge(found, {"S": ["known", "new", "fixed"]}, expected)
    assert [each.test for each in unexpected] == ["new"]
    assert gone == [("S", "fixed")]


def test_spark_whose_suites_cannot_be_run_is_refused() -> None:
    assert line_of("3.5.1").scala == "2.12"
    assert line_of("4.2.0").scala == "2.13"
    with pytest.raises(ValueError, match=r"Spark 4\.3\.0: the suites run with Spark 4\.2, 4\.1, 4\.0, 3\.5"):
        line_of("4.3.0")
