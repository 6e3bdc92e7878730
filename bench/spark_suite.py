"""Many Spark jobs through sort shuffle and Flight Shuffle, by file and over the wire: ``python -m bench.spark_suite``.

The 22 queries of TPC-H, shuffles of next to nothing, one large repartition into few and many partitions, and random
bytes (where sort shuffle runs with ``spark.shuffle.compress=false``, its best setting for them). Each side is a driver
process that lives through all of it; only one works at a time, A B C A B C ..., and each case is checked first: all
sides have to give the same rows. That is the warm-up too. The server runs all the time, on the same cores.

The ratios of two such runs can differ by some hundredths. ``--forks N`` does all of it N times, each with new drivers
and a new server, as JMH does.

A table goes to standard error, the JSON to standard output. docs/benchmarks/README.md explains the fields.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

from bench import spark_shuffle_job as job
from bench import spark_suite_report
from bench.harness import compare, machine, process
from bench.harness.ending import unwind_when_told_to_end
from bench.harness.server import ServerProcess
from bench.harness.spark_driver import ROOT
from bench.spark_shuffle import FLIGHT, RUN_TIMEOUT_S, SORT, Side, say, start_side
from bench.spark_suite_cases import GROUPS, NO_COMPRESSION, Case, prepare
from bench.spark_suite_report import Timing
from shuffle_plugins.spark import spark_conf

WIRE = "wire"
SIDES = (SORT, FLIGHT, WIRE)
PLAIN = "-plain"  # behind a side's name: it runs with `spark.shuffle.compress=false`
ALL_SIDES = (*SIDES, *(name + PLAIN for name in SIDES))
PLACES = ("json", "plot", "jfr", "input", "scratch")  # the options that don't change the work


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    with tempfile.TemporaryDirectory(prefix="spark-suite-", dir=options.scratch) as scratch:
        for report in measure(options, Path(scratch)):
            if options.json:
                Path(options.json).write_text(json.dumps(report, indent=2) + "\n")
    say(spark_suite_report.table(report))
    print(json.dumps(report, indent=2))
    if options.plot:
        spark_suite_report.plot(report, Path(options.plot))
    return 0


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_suite", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of TPC-H; 1 is about 300 MB of parquet (default: 1)")
    parser.add_argument("--queries", default="1-22", help="of TPC-H, such as 1-5,9 (default: 1-22)")
    parser.add_argument("--only", default=",".join(GROUPS), help=f"groups of cases (default: {','.join(GROUPS)})")
    parser.add_argument(
        "--sides",
        default=",".join(SIDES),
        help="sort shuffle, Flight Shuffle by file, over the wire; the first is what others are compared with"
        f" (default: {','.join(SIDES)}); with {PLAIN} behind it a side does not compress",
    )
    parser.add_argument("--partitions", type=int, default=32, help="reduce partitions of the queries (default: 32)")
    parser.add_argument("--many", default="64,500,5000", help="partitions to repartition into (default: 64,500,5000)")
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="to repartition, 108 bytes each (default: 10,000,000)"
    )
    parser.add_argument("--tiny", type=int, default=50, help="shuffles of next to nothing (default: 50)")
    parser.add_argument("--rounds", type=int, default=3, help="timed runs of each case and side (default: 3)")
    parser.add_argument("--warm-up", type=int, default=0, metavar="N", help="runs before those, not timed (default: 0)")
    parser.add_argument("--forks", type=int, default=1, help="times that all is done, with new processes (default: 1)")
    parser.add_argument("--memory", default="4g", help="heap of each driver (default: 4g)")
    parser.add_argument("--codec", default="lz4", help="spark.io.compression.codec of both sides (default: lz4)")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a Spark setting of all sides")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="spark.shuffle.flight.NAME")
    parser.add_argument("--json", metavar="FILE", help="write the JSON to a file too, after each case")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the ratios; needs matplotlib")
    parser.add_argument(
        "--jfr", metavar="DIR", help="record each driver with Java Flight Recorder into DIR/SIDE.jfr; of the last fork"
    )
    parser.add_argument("--input", metavar="DIR", help="where the input is kept (default: build/bench)")
    parser.add_argument("--scratch", metavar="DIR", help="for shuffle data of all sides (default: the system's)")
    options = parser.parse_args(arguments)
    if min(options.rounds, options.forks) < 1:
        parser.error("--rounds and --forks: at least 1")
    options.only = known(parser, "--only", "group", options.only, GROUPS)
    options.sides = known(parser, "--sides", "side", options.sides, ALL_SIDES)
    return options


def known(parser: argparse.ArgumentParser, option: str, what: str, given: str, names: Collection[str]) -> list[str]:
    """The names in a list like ``"a,b"``. Ends the program with what is wrong if one of them is not in ``names``."""
    listed = given.split(",")
    if unknown := set(listed) - set(names):
        parser.error(f"{option}: no such {what}: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return listed


def numbers(text: str) -> list[int]:
    """``"1-3,7"`` -> 1, 2, 3, 7."""
    ranges = [part.partition("-") for part in text.split(",")]
    return [n for first, _, last in ranges for n in range(int(first), int(last or first) + 1)]


def measure(options: argparse.Namespace, scratch: Path) -> Iterator[dict[str, Any]]:
    """Run everything; after each case the report of all so far."""
    cases = prepare(
        Path(options.input or ROOT / "build" / "bench"),
        options.only,
        scale=options.scale,
        queries=numbers(options.queries),
        rows=options.rows,
        tiny=options.tiny,
        many=numbers(options.many),
    )
    about = {
        "benchmark": "spark_suite",
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine.facts() | {"load_before": round(machine.load(), 2)},
        "parameters": {name: value for name, value in vars(options).items() if name not in PLACES},
    }
    timings: dict[str, Timing] = {}
    pushed = 0
    for number in range(1, options.forks + 1):
        own = scratch / str(number)
        own.mkdir()
        with ExitStack() as running:
            server = running.enter_context(ServerProcess(own / "data", own / "server.log"))
            sides = [start(running, name, server, options, own) for name in options.sides]
            for case in in_turn(cases, sides):
                timing = timings.setdefault(case.name, Timing(case.name, case.group))
                time_case(case, sides, options.rounds, options.warm_up, timing)
                yield about | {
                    "bytes_pushed": pushed + server.status().bytes_pushed,
                    "groups": spark_suite_report.groups(timings.values()),
                    "cases": [timed.report(options.rounds) for timed in timings.values()],
                }
            pushed += server.status().bytes_pushed


def start(running: ExitStack, name: str, server: ServerProcess, options: argparse.Namespace, scratch: Path) -> Side:
    """One of `ALL_SIDES`, ready."""
    conf = {"spark.sql.adaptive.enabled": "true"} | (NO_COMPRESSION if name.endswith(PLAIN) else {})
    kind = name.removesuffix(PLAIN)
    if kind == SORT:
        return start_side(running, name, conf, options, scratch)
    given = dict(pair.split("=", 1) for pair in options.option)
    if kind == WIRE:
        given["handOver"] = "off"
    conf |= spark_conf(server.control, fallback="never", options=given)
    side = start_side(running, name, conf, options, scratch)
    side.processes["server"] = server.pid
    return side


def in_turn(cases: list[Case], sides: list[Side]) -> Iterator[Case]:
    """Each case, when sort shuffle has the settings that are best for it."""
    for conf, same in groupby(cases, key=lambda case: case.sort_conf):
        for side in sides:
            if side.name == SORT:
                side.driver.renew(conf)
                side.processes["jvm"] = side.driver.call(job.jvm_pid)
        yield from same


def time_case(case: Case, sides: list[Side], rounds: int, warm_up: int, timing: Timing) -> None:
    """Add the times of all sides to ``timing``. Raises SystemExit if their answers differ."""
    first, *others = ((side, side.driver.call(case.check, timeout=RUN_TIMEOUT_S, **case.arguments)) for side in sides)
    for side, rows in others:
        if difference := compare.rows_equal(first[1], rows, ordered=False):
            raise SystemExit(f"{case.name}: {first[0].name} and {side.name} differ: {difference}")
    for _ in range(warm_up):
        for side in sides:
            _run(case, side)
    for number in range(1, rounds + 1):
        for side in sides:
            timing.add(side.name, *_run(case, side))
        times = (f"{side.name} {timing.seconds[side.name][-1]:.2f} s" for side in sides)
        say(f"{case.name}, round {number}: {', '.join(times)}")


def _run(case: Case, side: Side) -> tuple[float, float]:
    """Wall and processor seconds of one run."""
    if case.heavy:
        side.driver.call(job.tidy)
    before = _cpu(side)
    seconds: float = side.driver.call(case.timed, timeout=RUN_TIMEOUT_S, **case.arguments)
    return seconds, _cpu(side) - before


def _cpu(side: Side) -> float:
    return sum(process.cpu_seconds(pid) for pid in side.processes.values())


if __name__ == "__main__":
    unwind_when_told_to_end()
    sys.exit(main())
