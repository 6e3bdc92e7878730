"""``flight-shuffle bench transport`` from outside: what it prints, and what it leaves."""

import builtins
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
from tests.shuffle_transport.channels.helpers import eventually

PROGRAM = (sys.executable, "-c", "import sys; from shuffle_server.cli import main; sys.exit(main())")
BENCH = ("bench", "transport")


def run(*arguments: str) -> int:
    program = click.Group("flight-shuffle")
    command.register(program)
    return int(program.main([*BENCH, *arguments], standalone_mode=False) or 0)


def marked(mark: str) -> list[bytes]:
    """Command lines of the processes that were started with ``mark`` in their environment, at any remove."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes())
    return found


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
