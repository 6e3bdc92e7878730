"""``flight-shuffle bench transport``; found through the entry point group ``flight_shuffle.commands``."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from shuffle_api.errors import InvalidArgument
from shuffle_transport.bench.plan import QUICK, Plan

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

NAMES = ("sizes", "messages", "channels", "isolation", "codecs", "latency", "load", "memory")


def register(subparsers: Subparsers) -> None:
    """Add the subcommand. Its parser sets ``run``: a function of the parsed arguments that returns the exit status."""
    parser = subparsers.add_parser("bench", help="measure on this machine, beside what it can do at best")
    what = parser.add_subparsers(metavar="WHAT", required=True)
    transport = what.add_parser(
        "transport",
        help="credit streams, push and pull beside raw Flight and raw TCP",
        description="Measure the transport between two processes of this machine: throughput, latency and memory of "
        "credit streams, beside raw Flight and raw TCP in the same run. Takes about half an hour (--quick: seconds).",
    )
    transport.add_argument("--json", action="store_true", help="print the whole report as JSON, not as tables")
    transport.add_argument("--plot", metavar="FILE.png", type=Path, help="draw the figures too; needs matplotlib")
    transport.add_argument("--quick", action="store_true", help="small and short: that it works, not how fast it is")
    transport.add_argument(
        "--only", nargs="+", choices=NAMES, metavar="NAME", help=f"only these cases, of: {', '.join(NAMES)}"
    )
    transport.add_argument(
        "--rounds",
        type=_rounds,
        metavar="N",
        help=f"pairs of runs (default: {Plan().rounds}; {QUICK.rounds} if quick)",
    )
    transport.add_argument("--check", action="store_true", help="exit with status 1 if a measured target is missed")
    transport.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print. Raises InvalidArgument when the plot cannot be drawn, before anything is measured."""
    from shuffle_transport.bench.report import measure  # Arrow and numpy are loaded by those who measure
    from shuffle_transport.bench.table import tables

    if arguments.plot is not None:
        _check_plot(arguments.plot)
    plan = QUICK if arguments.quick else Plan()
    if arguments.rounds:
        plan = replace(plan, rounds=arguments.rounds)
    report = measure(plan, arguments.only or NAMES)
    sys.stdout.write(json.dumps(report, indent=2) + "\n" if arguments.json else tables(report))
    if arguments.plot is not None:
        from shuffle_transport.bench.plot import draw

        draw(report, arguments.plot)
    missed = any(target["met"] is False for target in report["targets"])
    return int(arguments.check and missed)


def _rounds(given: str) -> int:
    if not given.isdecimal() or int(given) < 1:
        raise argparse.ArgumentTypeError(f"{given!r} is no number of rounds: give 1 or more, 5 for figures to quote")
    return int(given)


def _check_plot(path: Path) -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InvalidArgument(
            "--plot needs matplotlib, which is not installed", remedy="pip install 'flight-shuffle[plot]'"
        ) from None
    if path.suffix != ".png" or not path.parent.is_dir():
        raise InvalidArgument(f"--plot {path}", remedy="name a .png file in a directory that exists")
