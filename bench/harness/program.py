"""The command line of a benchmark, and its report: JSON on standard output, and in a file with ``--json FILE``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from bench.harness import machine
from bench.harness.ending import unwind_when_told_to_end

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

P = TypeVar("P", bound="DataclassInstance")
Report = dict[str, Any]


def parser(benchmark: str, text: str | None) -> argparse.ArgumentParser:
    """Of ``python -m bench.BENCHMARK``, with the options that all have; the first line of ``text`` describes it."""
    made = argparse.ArgumentParser(prog=f"python -m bench.{benchmark}", description=(text or "").split("\n")[0])
    made.add_argument("--json", type=Path, metavar="FILE", help="write the report to a file too")
    made.add_argument("--scratch", type=Path, metavar="DIR", help="where data is stored (default: the system's choice)")
    return made


def add_options(to: argparse.ArgumentParser, **known: tuple[Any, str]) -> None:
    """An option of each default and help; the type is that of the default. One of a list takes several values."""
    for name, (default, text) in known.items():
        several: Report = {"type": type(default)}
        shown: object = default
        if isinstance(default, (list, tuple)):
            several, shown = {"type": type(default[0]), "nargs": "+"}, " ".join(map(str, default))
        to.add_argument(f"--{name.replace('_', '-')}", default=default, help=f"{text} (default: {shown})", **several)


def add_pairs(to: argparse.ArgumentParser, option: str, pair: str, text: str) -> None:
    """An option that may be repeated, whose values `pairs` reads."""
    to.add_argument(option, action="append", default=[], metavar=pair, help=text)


def pairs(given: Iterable[str]) -> dict[str, str]:
    """``["a=1", "b=2"]`` by name."""
    return dict(each.split("=", 1) for each in given)


def numbers(text: str) -> list[int]:
    """``"1-3,7"`` -> 1, 2, 3, 7."""
    ranges = [part.partition("-") for part in text.split(",")]
    return [n for first, _, last in ranges for n in range(int(first), int(last or first) + 1)]


def known(to: argparse.ArgumentParser, option: str, what: str, given: str, names: Collection[str]) -> list[str]:
    """The names in a list like ``"a,b"``. Ends the program with what is wrong if one of them is not in ``names``."""
    listed = given.split(",")
    if unknown := set(listed) - set(names):
        to.error(f"{option}: no such {what}: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return listed


def heading(benchmark: str, parameters: Mapping[str, Any]) -> Report:
    """How every report begins. Made before the measurements: it has the load of the minute before."""
    date = time.strftime("%Y-%m-%d")
    return {"benchmark": benchmark, "date": date, "machine": machine.facts(), "parameters": dict(parameters)}


def measure(
    benchmark: str,
    parameters: P,
    scratch: Path,
    parts: Sequence[str],
    all_parts: Mapping[str, Callable[[P, Path], Report]],
) -> Report:
    """A report with the figures of some of the parts; each has the load of the minute before it."""
    report = heading(benchmark, asdict(parameters))
    for part in parts:
        load = os.getloadavg()[0]
        report[part] = {"load_before": load, **all_parts[part](parameters, scratch)}
    return report


def kept(file: Path | None) -> Report:
    """What the file says of the parts that this run leaves out."""
    return json.loads(file.read_text()) if file is not None and file.exists() else {}


def publish(report: Report, file: Path | None) -> None:
    """Print it, and write it to the file if there is one."""
    text = json.dumps(report, indent=2) + "\n"
    sys.stdout.write(text)
    if file is not None:
        file.write_text(text)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """In Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def run(main: Callable[[], int | None]) -> NoReturn:
    """The whole program. SIGTERM and SIGHUP end it as Ctrl-C does."""
    unwind_when_told_to_end()
    sys.exit(main())
