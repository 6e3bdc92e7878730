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
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from bench import spark_jobs as job
from bench.harness import compare, process, program
from bench.harness.server import ServerProcess
from bench.harness.spark import local_conf
from bench.harness.spark_driver import ROOT, SparkDriver
from bench.spark_suite import report as reporting
from bench.spark_suite.cases import GROUPS, NO_COMPRESSION, Case, prepare
from bench.spark_suite.report import Timing
from shuffle_plugins.spark import spark_conf
from shuffle_transport.progress import say

SORT, FLIGHT, WIRE = "sort", "flight", "wire"
SIDES = (SORT, FLIGHT, WIRE)
PLAIN = "-plain"  # behind a side's name: it runs with `spark.shuffle.compress=false`
ALL_SIDES = (*SIDES, *(name + PLAIN for name in SIDES))
PLACES = ("json", "jfr", "input", "scratch")  # the options that don't change the work
RUN_TIMEOUT_S = 1800.0


@dataclass(slots=True)
class Side:
    """A driver, and the processes whose processor time counts."""

    name: str
    driver: SparkDriver
    processes: dict[str, int]


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    with tempfile.TemporaryDirectory(prefix="spark-suite-", dir=options.scratch) as scratch:
        for report in measure(options, Path(scratch)):
            if options.json:
                options.json.write_text(json.dumps(report, indent=2) + "\n")
    say(reporting.table(report))
    program.publish(report, options.json)
    return 0


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = program.parser("spark_suite", __doc__)
    program.add_options(
        parser,
        scale=(1.0, "of TPC-H; 1 is about 300 MB of parquet"),
        queries=("1-22", "of TPC-H, such as 1-5,9"),
        only=(",".join(GROUPS), "groups of cases"),
        sides=(
            ",".join(SIDES),
            "sort shuffle, Flight Shuffle by file, over the wire; the first is what others are compared with;"
            f" with {PLAIN} behind it a side does not compress",
        ),
        partitions=(32, "reduce partitions of the queries"),
        many=("64,500,5000", "partitions to repartition into"),
        rows=(10_000_000, "to repartition, 108 bytes each"),
        tiny=(50, "shuffles of next to nothing"),
        rounds=(3, "timed runs of each case and side"),
        warm_up=(0, "runs before those, not timed"),
        forks=(1, "times that all is done, with new processes"),
        memory=("4g", "heap of each driver"),
        codec=("lz4", "spark.io.compression.codec of all sides"),
    )
    program.add_pairs(parser, "--conf", "KEY=VALUE", "a Spark setting of all sides")
    program.add_pairs(parser, "--option", "NAME=VALUE", "spark.shuffle.flight.NAME")
    parser.add_argument(
        "--jfr", metavar="DIR", help="record each driver with Java Flight Recorder into DIR/SIDE.jfr; of the last fork"
    )
    parser.add_argument("--input", metavar="DIR", help="where the input is kept (default: build/bench)")
    options = parser.parse_args(arguments)
    if min(options.rounds, options.forks) < 1:
        parser.error("--rounds and --forks: at least 1")
    options.only = program.known(parser, "--only", "group", options.only, GROUPS)
    options.sides = program.known(parser, "--sides", "side", options.sides, ALL_SIDES)
    return options


def measure(options: argparse.Namespace, scratch: Path) -> Iterator[dict[str, Any]]:
    """Run everything; after each case the report of all so far."""
    cases = prepare(Path(options.input or ROOT / "build" / "bench"), options)
    about = program.heading("spark_suite", {k: v for k, v in vars(options).items() if k not in PLACES})
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
                    "groups": reporting.groups(timings.values()),
                    "cases": [timed.report(options.rounds) for timed in timings.values()],
                }
            pushed += server.status().bytes_pushed


def start(running: ExitStack, name: str, server: ServerProcess, options: argparse.Namespace, scratch: Path) -> Side:
    """One of `ALL_SIDES`, ready."""
    own = scratch / name
    own.mkdir()
    conf = local_conf(own, memory=options.memory, partitions=options.partitions)
    conf |= {"spark.sql.adaptive.enabled": "true", "spark.io.compression.codec": options.codec}
    conf |= NO_COMPRESSION if name.endswith(PLAIN) else {}
    # The full collections after a run would leave the next one with a small heap, which G1 then marks all the time; and
    # one that still grows has a page fault for each 4 KiB, in some runs and not in others.
    conf["spark.driver.extraJavaOptions"] += f" -Xms{options.memory} -XX:+AlwaysPreTouch"
    if options.jfr:
        Path(options.jfr).mkdir(parents=True, exist_ok=True)
        recording = Path(options.jfr).resolve() / f"{name}.jfr"
        conf["spark.driver.extraJavaOptions"] += f" -XX:StartFlightRecording=filename={recording},settings=profile"
    processes, kind = {}, name.removesuffix(PLAIN)
    if kind != SORT:
        given = program.pairs(options.option) | ({"handOver": "off"} if kind == WIRE else {})
        conf |= spark_conf(server.control, fallback="never", options=given)
        processes["server"] = server.pid
    driver = running.enter_context(SparkDriver(conf | program.pairs(options.conf), own / "spark.log"))
    return Side(name, driver, {"jvm": driver.call(job.jvm_pid)} | processes)


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
    for number in range(1 - warm_up, rounds + 1):
        took = {side.name: _run(case, side, timing if number > 0 else None) for side in sides}
        what = f"round {number}" if number > 0 else "warm-up"
        say(f"{case.name}, {what}: {', '.join(f'{name} {seconds:.2f} s' for name, seconds in took.items())}")


def _run(case: Case, side: Side, timing: Timing | None) -> float:
    """Wall seconds of one run, which `timing` gets too."""
    if case.heavy:
        side.driver.call(job.tidy)
    before = {name: process.cpu_seconds(pid) for name, pid in side.processes.items()}
    threads = {name: process.cpu_by_thread_name(pid) for name, pid in side.processes.items()}
    done: job.Run = side.driver.call(case.timed, timeout=RUN_TIMEOUT_S, **case.arguments)
    if timing is not None:
        cpu_s = sum(process.cpu_seconds(pid) - before[name] for name, pid in side.processes.items())
        timing.add(side.name, done.seconds, cpu_s)
        if done.stages:
            spent = {name: process.since(threads[name], pid) for name, pid in side.processes.items()}
            timing.add_stages(side.name, done.stages, spent)
    return done.seconds


if __name__ == "__main__":
    program.run(main)
