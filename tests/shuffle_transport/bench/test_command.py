"""``flight-shuffle bench transport`` from outside: what it prints, and what it leaves."""

import builtins
import json
import os
import subprocess
import sys
import uuid
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click
import pytest

from shuffle_api.errors import InvalidArgument
from shuffle_transport.bench import command
from shuffle_transport.bench.cases import CASES
from shuffle_transport.bench.report import tables
from tests.shuffle_transport.channels.helpers import eventually

PROGRAM = (sys.executable, "-c", "import sys; from shuffle_server.cli import main; sys.exit(main())")
BENCH = ("bench", "transport")
SIDE = {"gib_s", "blocks_s", "ratio", "cpu_s_per_gib", "seconds"}
DELAYS = {"p50", "p90", "p99", "p99_9", "max"}


def run(*arguments: str) -> int:
    program = click.Group("flight-shuffle")
    command.register(program)
    return int(program.main([*BENCH, *arguments], standalone_mode=False) or 0)


def children() -> set[str]:
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())


def marked(mark: str) -> list[bytes]:
    """Command lines of the processes that were started with ``mark`` in their environment, at any remove."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes())
    return found


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


def test_check_fails_when_a_target_is_missed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = {"targets": [{"met": True}, {"met": None}]}
    monkeypatch.setattr("shuffle_transport.bench.cases.measure", lambda plan, names, **_: report)
    assert run("--json", "--check") == 0
    report["targets"].append({"met": False})
    assert run("--json", "--check") == 1
    assert run("--json") == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--only", "speed"], "'speed' is not one of 'sizes', 'messages'"),
        (["--only", "sizes", "speed"], "'speed' is not one of 'sizes', 'messages'"),
        (["--rounds", "0"], "'0' is no number of rounds: give 1 or more"),
        (["--rounds", "many"], "'many' is no number of rounds"),
        (["--fast"], "No such option"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], says: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        run(*arguments)
    assert refused.value.exit_code == 2
    assert says in refused.value.format_message()


@pytest.mark.parametrize("path", ["/nowhere/at/all.png", "plot.svg"])
def test_a_plot_that_cannot_be_written_is_refused_first(path: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"--plot {path}.*a \.png file in a directory that exists"):
        run("--plot", path)


def test_a_missing_matplotlib_is_named_with_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    there = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return there(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidArgument, match=r"pip install 'flight-shuffle\[plot\]'"):
        run("--plot", "plot.png")


def test_the_command_is_found_through_its_entry_point() -> None:
    (point,) = entry_points(group="flight_shuffle.commands", name="bench")
    assert point.load() is command.register


def test_arrow_is_loaded_by_those_who_measure_only() -> None:
    code = (
        "import click, sys; from shuffle_transport.bench.command import register\n"
        "register(click.Group())\n"
        "sys.exit('pyarrow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], timeout=240, check=True)


def test_killed_command_leaves_no_process() -> None:
    mark = str(uuid.uuid4())
    started = subprocess.Popen(
        [*PROGRAM, *BENCH, "--quick", "--only", "sizes"],
        env=os.environ | {"TEST_MARK": mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: any(b"shuffle_transport.bench.peer" in line for line in marked(mark)))
    finally:
        started.kill()
        started.wait()
    eventually(lambda: not marked(mark))
