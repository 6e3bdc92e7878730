"""bench.spark_suite: a tiny run of all its groups reports what docs/benchmarks/README.md describes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bench import spark_jobs
from bench.harness import program
from bench.harness.spark_driver import ROOT
from bench.spark_suite import __main__ as spark_suite
from bench.spark_suite import report as reporting
from bench.spark_suite.cases import prepare
from bench.spark_suite.report import Timing


def test_numbers_are_ranges_and_single_ones() -> None:
    assert program.numbers("1-3,7,64") == [1, 2, 3, 7, 64]


def test_input_is_the_same_each_time_and_has_all_rows(tmp_path: Path) -> None:
    tables = []
    for name in ("one", "other"):
        spark_jobs.write_input(tmp_path / name, 1_000)
        tables.append(pq.read_table(tmp_path / name))
    assert tables[0].equals(tables[1])
    assert sorted(tables[0]["id"].to_pylist()) == list(range(1_000))
    assert {len(text) for text in tables[0]["s"].to_pylist()} == {spark_jobs.TEXT}
    assert len(set(tables[0]["s"].to_pylist())) == 1_000


def test_unknown_group_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        spark_suite.parse_arguments(["--only=tpch,tpcx"])
    assert "no such group: tpcx; there are tpch, tiny" in capsys.readouterr().err


def test_unknown_side_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        spark_suite.parse_arguments(["--sides=sort,hash"])
    assert "no such side: hash; there are sort, flight, wire" in capsys.readouterr().err


def test_no_fork_at_all_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        spark_suite.parse_arguments(["--forks=0"])
    assert "at least 1" in capsys.readouterr().err


def test_cold_runs_may_be_all_that_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert spark_suite.parse_arguments(["--cold", "--rounds=0"]).cold
    with pytest.raises(SystemExit):
        spark_suite.parse_arguments(["--rounds=0"])
    assert "at least 1 (without --cold)" in capsys.readouterr().err


def test_cold_runs_have_the_first_shuffle_apart(tmp_path: Path) -> None:
    [case] = prepare(tmp_path, spark_suite.parse_arguments(["--only=tiny", "--tiny=5"]))
    assert [(part.name, part.arguments["shuffles"]) for part in case.cold()] == [
        ("first shuffle", 1),
        ("4 more tiny", 4),
    ]


def test_table_has_cold_runs_before_warm_ones() -> None:
    parts = []
    for name, flight in (("first shuffle", 1.25), ("50 tiny", 0.5)):
        timing = Timing(name, "tiny")
        timing.add("sort", 1.0, 1.0)
        timing.add("flight", flight, 1.0)
        parts.append(reporting.figures([timing], rounds=1))
    report = {"parameters": {"sides": ["sort", "flight"]}, "cold": parts[0], **parts[1]}
    assert reporting.table(report).splitlines()[2:] == [
        "| cold | first shuffle | 1.00 s | 1.25 s | 1.25 |",
        "| cold | all of tiny | 1.00 s | 1.25 s | 1.25 |",
        "| warm | 50 tiny | 1.00 s | 0.50 s | 0.50 |",
        "| warm | all of tiny | 1.00 s | 0.50 s | 0.50 |",
    ]


def test_difference_is_the_median_of_runs_beside_each_other() -> None:
    spent = {"sort": [1.0, 2.0, 3.0], "flight": [1.1, 2.3, 2.0]}
    assert reporting.more(spent) == {"flight": 0.1}


def test_ratio_of_a_group_is_that_of_its_sums() -> None:
    timings = [Timing("a", "g"), Timing("b", "g")]
    for timing, sort, flight, wire in zip(timings, (1.0, 3.0), (2.0, 1.0), (3.0, 3.0), strict=True):
        timing.add("sort", sort, 1.0)
        timing.add("flight", flight, 2.0)
        timing.add("wire", wire, 0.5)
    assert reporting.groups(timings) == {
        "g": {
            "ratio": {"flight": 0.75, "wire": 1.5},
            "cpu_ratio": {"flight": 2.0, "wire": 0.5},
            "s": {"sort": 4.0, "flight": 3.0, "wire": 6.0},
            "cpu_s": {"sort": 2.0, "flight": 4.0, "wire": 1.0},
        }
    }


def test_forks_have_ratios_of_their_own() -> None:
    timing = Timing("a", "g")
    for sort, flight in ((2.0, 1.0), (2.0, 1.0), (2.0, 8.0), (4.0, 3.0), (4.0, 3.0), (4.0, 3.0)):
        timing.add("sort", sort, 1.0)
        timing.add("flight", flight, 1.0)
    report = timing.report(rounds=3)
    assert report["fork_ratios"] == {"flight": [0.5, 0.75]}
    assert report["ratio"] == {"flight": 1.0}


def suite(folder: Path, *work: str) -> tuple[dict[str, Any], str]:
    """Runs with input and scratch directory below a folder: the report, and what was shown."""
    command = [sys.executable, "-m", "bench.spark_suite", *work, f"--input={folder}", f"--scratch={folder}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1400, check=True)
    return json.loads(done.stdout), done.stderr


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(1500)
def test_each_fork_has_new_drivers_and_a_new_server(tmp_path: Path) -> None:
    report, shown = suite(
        tmp_path, "--only=tiny", "--sides=sort,wire", "--tiny=2", "--rounds=2", "--forks=2", "--memory=1g"
    )
    (case,) = report["cases"]
    assert len(case["seconds"]["wire"]) == 4
    assert len(case["fork_ratios"]["wire"]) == 2
    assert shown.count("2 tiny, round 1:") == 2
    assert report["bytes_pushed"] > 0
    assert not list(tmp_path.glob("spark-suite-*"))


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(1500)
def test_cold_run_has_a_new_driver_for_each_side(tmp_path: Path) -> None:
    report, shown = suite(
        tmp_path, "--only=tiny", "--sides=sort,flight", "--tiny=2", "--cold", "--rounds=0", "--memory=1g"
    )
    assert report["cases"] == []
    cases = {case["name"]: case for case in report["cold"]["cases"]}
    assert list(cases) == ["start of tiny", "first shuffle", "1 more tiny"]
    for case in cases.values():
        assert set(case["median_cpu_s"]) == {"sort", "flight"}
        assert set(case["more_s"]) == {"flight"}
    assert "| cold | first shuffle |" in shown
    assert report["bytes_pushed"] > 0
    assert not list(tmp_path.glob("spark-suite-*"))


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(1500)
def test_small_run_reports_every_case(tmp_path: Path) -> None:
    sized = ["--scale=0.01", "--queries=4", "--rows=2000", "--many=3", "--tiny=2", "--rounds=1", "--warm-up=1"]
    work = [*sized, "--sides=sort,flight"]  # over the wire: see the test of forks
    report, shown = suite(tmp_path, *work, "--partitions=4", "--memory=1g", f"--json={tmp_path / 'out.json'}")
    assert report == json.loads((tmp_path / "out.json").read_text())
    assert [case["name"] for case in report["cases"]] == ["q4", "2 tiny", "into 3", "random bytes"]
    for case in report["cases"]:
        assert set(case["median_s"]) == {"sort", "flight"}
        assert set(case["ratio"]) == {"flight"}
        assert len(case["seconds"]["flight"]) == 1  # without the warm-up
        assert min(case["ratio"].values()) > 0
    assert set(report["groups"]) == {"tpch", "tiny", "partitions", "incompressible"}
    assert report["bytes_pushed"] > 0
    assert "| warm | q4 |" in shown
    into = report["cases"][2]
    for name, processes in {"sort": {"jvm"}, "flight": {"jvm", "server"}}.items():
        assert set(into["threads_cpu_s"][name]) == processes
        map_stage, reduce_stage = into["stages"][name]
        assert map_stage["shuffle_write_bytes"] == reduce_stage["shuffle_read_bytes"] > 0
        assert reduce_stage["tasks"] == 3
    assert report["bytes_pushed"] >= into["stages"]["flight"][0]["shuffle_write_bytes"]
    assert not list(tmp_path.glob("spark-suite-*"))  # the scratch directory is gone
