"""One quick run of every case, as a user starts it: the report, its tables and its plot."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shuffle_transport.bench import command
from shuffle_transport.bench.cases import CASES
from shuffle_transport.bench.report import tables
from tests.shuffle_transport.bench.test_command import BENCH, PROGRAM

SIDE = {"gib_s", "blocks_s", "ratio", "cpu_s_per_gib", "seconds"}
DELAYS = {"p50", "p90", "p99", "p99_9", "max"}

pytestmark = pytest.mark.nightly


def children() -> set[str]:
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())


@pytest.fixture(scope="module")
def plot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench") / "plot.png"


@pytest.fixture(scope="module")
def report(plot: Path) -> dict[str, Any]:
    """One quick run of everything, as a user starts it."""
    before = children()
    command_line = ["--quick", "--rounds", "1", "--json", "--plot", str(plot)]
    done = subprocess.run([*PROGRAM, *BENCH, *command_line], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert children() == before
    assert "put 4096 B in 1048576 B" in done.stderr
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def test_report_says_where_it_was_measured(report: dict[str, Any]) -> None:
    assert set(report) == {
        "benchmark", "date", "machine", "limits_gib_s", "parameters", "took_s", "targets", "cases",
    }  # fmt: skip
    assert report["machine"]["cores"] == os.cpu_count()
    assert min(report["limits_gib_s"].values()) > 0
    assert tuple(report["cases"]) == command.NAMES == tuple(CASES)


@pytest.mark.parametrize("case", ["sizes", "messages", "channels", "codecs"])
def test_throughput_cases_have_all_fields(report: dict[str, Any], case: str) -> None:
    points = report["cases"][case]
    assert points
    for point in points:
        assert {"raw_flight", "credit"} <= set(point["sides"])
        assert point["bytes_per_run"] > 0
        for side in point["sides"].values():
            assert set(side) == SIDE
            assert min(side["gib_s"], side["cpu_s_per_gib"]["client"], side["cpu_s_per_gib"]["peer"]) > 0
            assert len(side["ratio"]["pairs"]) == 1


def test_ratios_are_of_runs_in_one_round(report: dict[str, Any]) -> None:
    sides = report["cases"]["sizes"][0]["sides"]
    (pair,) = sides["credit"]["ratio"]["pairs"]
    assert pair == pytest.approx(sides["raw_flight"]["seconds"][0] / sides["credit"]["seconds"][0], rel=0.05)
    assert sides["raw_flight"]["ratio"]["median"] == 1.0


def test_every_way_has_its_contenders(report: dict[str, Any]) -> None:
    found = {point["way"]: set(point["sides"]) for point in report["cases"]["sizes"]}
    both = {"raw_flight", "raw_flight_polling", "credit", "raw_tcp"}
    assert found == {"put": both | {"remote", "credit_checked"}, "get": both | {"remote"}, "exchange": both}


def test_latency_cases_have_all_fields(report: dict[str, Any]) -> None:
    (trip,) = report["cases"]["latency"]
    assert set(trip["sides"]) == {"raw_flight", "raw_flight_polling", "credit", "raw_tcp"}
    assert all(set(side) > DELAYS for side in trip["sides"].values())
    assert [point["blocks_s"] for point in report["cases"]["load"]] == [1_000, 50_000]
    for point in report["cases"]["load"]:
        assert all(set(side) > DELAYS and side["p50"] > 0 for side in point["sides"].values())


def test_memory_cases_have_all_fields(report: dict[str, Any]) -> None:
    credit, raw = report["cases"]["isolation"]
    assert (credit["side"], raw["side"], credit["channels"]) == ("credit", "raw_flight", 8)
    assert credit["kept"]["median"] > 0
    assert credit["stopped_bytes_s"] == [0]
    assert 0 < credit["pool"]["peak"] <= credit["pool"]["budget"]
    assert [point["budget_bytes"] for point in report["cases"]["memory"]] == [32 << 20] * 2
    assert set(report["cases"]["memory"][0]["growth_bytes"]) == {"client", "peer"}


def test_targets_that_were_measured_are_met_or_missed(report: dict[str, Any]) -> None:
    met = {target["name"]: target["met"] for target in report["targets"]}
    assert met["credit stream / raw Flight, put, 64 KiB blocks"] in (True, False)
    assert met["credit stream / raw Flight, put, 4 MiB blocks"] is None  # not among the quick plan's sizes


def test_tables_show_every_case(report: dict[str, Any]) -> None:
    text = tables(report)
    titles = [line for line in text.splitlines() if line.startswith("# ")]
    assert len(titles) == len(CASES) + 1
    assert "round trip p50 / bare DoExchange" in text
    assert "not measured" in text


def test_plot_is_a_picture(report: dict[str, Any], plot: Path) -> None:
    assert plot.read_bytes().startswith(b"\x89PNG")
