"""``flight-shuffle bench``, which is found through the entry point group ``flight_shuffle.commands``."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from shuffle_api.errors import InvalidArgument
from shuffle_transport.bench.plan import QUICK, Plan
from shuffle_transport.command_line import (
    Command,
    Size,
    credential_options,
    keyring_of,
    server_of,
    server_option,
    timeout_option,
)

NAMES = ("sizes", "messages", "channels", "isolation", "codecs", "latency", "load", "memory")


def register(program: click.Group) -> None:
    """Add the subcommand."""
    program.add_command(bench)


class _OnlyCommand(Command):
    """Lets several names stand behind one ``--only``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        behind = False
        for arg in args:
            behind = arg == "--only" or (behind and not arg.startswith("-"))
            spread += ["--only", arg] if behind and arg != "--only" else [] if arg == "--only" else [arg]
        if args and args[-1] == "--only":
            spread.append("--only")
        return super().parse_args(ctx, spread)


class _Rounds(click.ParamType[int]):
    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if not str(value).isdecimal() or int(value) < 1:
            self.fail(f"{value!r} is no number of rounds: give 1 or more, 5 for figures to quote", param, ctx)
        return int(value)


@click.group(short_help="measure this machine, or a cluster as it is seen from here")
def bench() -> None:
    """Measure this machine, beside what it can do at best, or a cluster as it is seen from here."""


@bench.command(cls=_OnlyCommand, short_help="credit streams, push and pull beside raw Flight and raw TCP")
@click.option("--json", "as_json", is_flag=True, help="print the whole report as JSON, not as tables")
@click.option(
    "--plot", metavar="FILE.png", type=click.Path(path_type=Path), help="draw the figures too; needs matplotlib"
)
@click.option("--quick", is_flag=True, help="small and short: that it works, not how fast it is")
@click.option("--only", type=click.Choice(NAMES), multiple=True, help="only these cases; several names may follow")
@click.option(
    "--rounds",
    type=_Rounds(),
    metavar="N",
    help=f"pairs of runs (default: {Plan().rounds}; {QUICK.rounds} if quick)",
)
@click.option("--check", is_flag=True, help="exit with status 1 if a measured target is missed")
def transport(
    as_json: bool, plot: Path | None, quick: bool, only: tuple[str, ...], rounds: int | None, check: bool
) -> int:
    """Measure the transport between two processes of this machine: throughput, latency and memory of credit streams,
    beside raw Flight and raw TCP in the same run. Takes about half an hour (--quick: seconds).
    """
    from shuffle_transport.bench.cases import measure  # Arrow and numpy are loaded by those who measure
    from shuffle_transport.bench.report import tables

    if plot is not None:
        _check_plot(plot)
    plan = QUICK if quick else Plan()
    if rounds:
        plan = replace(plan, rounds=rounds)
    report = measure(plan, only or NAMES, quiet=as_json)
    sys.stdout.write(json.dumps(report, indent=2) + "\n" if as_json else tables(report))
    if plot is not None:
        from shuffle_transport.bench.report import draw

        draw(report, plot)
    missed = any(target["met"] is False for target in report["targets"])
    return int(check and missed)


@bench.command(cls=Command, short_help="write to each worker of a running cluster, and read")
@server_option()
@click.option(
    "--size",
    type=Size(1),
    default="256m",
    metavar="SIZE",
    help="bytes to each worker; more than its memory holds comes from its disks",
)
@click.option("--streams", type=click.IntRange(1), default=4, metavar="COUNT", help="at a time, of each worker")
@click.option("--json", "as_json", is_flag=True, help="print JSON, not a table")
@timeout_option(600.0, "of one push or pull")
@credential_options()
@click.pass_context
def cluster(context: click.Context, /, size: int, streams: int, as_json: bool, timeout: float, **_: str) -> None:
    """Measure the network and the disks of a running cluster from this machine, before it goes live: writes map outputs
    of random bytes to each worker alone, then to all at once, and reads them again. They are removed in the end.
    """
    from shuffle_transport.bench.cluster import Work, measure, table

    report = measure(server_of(context), keyring_of(context), Work(size, streams, timeout), quiet=as_json)
    sys.stdout.write(json.dumps(report, indent=2) + "\n" if as_json else table(report))


def _check_plot(path: Path) -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InvalidArgument(
            "--plot needs matplotlib, which is not installed", remedy="pip install 'flight-shuffle[plot]'"
        ) from None
    if path.suffix != ".png" or not path.parent.is_dir():
        raise InvalidArgument(f"--plot {path}", remedy="name a .png file in a directory that exists")
