"""Many Spark jobs through sort shuffle and Flight Shuffle, by file and over the wire: ``python -m bench.spark_suite``.

The 22 queries of TPC-H, shuffles of next to nothing, one large repartition into few and many partitions, and random
bytes (where sort shuffle runs with ``spark.shuffle.compress=false``, its best setting for them). Each side is a driver
process that lives through all of it; only one works at a time, A B C A B C ..., and each case is checked first: all
sides have to give the same rows. That is the warm-up too. The server runs all the time, on the same cores.

The ratios of two such runs can differ by some hundredths. ``--forks N`` does all of it N times, each with new drivers
and a new server, as JMH does. ``--cold`` begins with N cold runs, which are what most applications are: a new driver of
each side for each group, which does the work once, with its JVM's usual heap; the server is warm.

A table goes to standard error, the JSON to standard output. docs/benchmarks/README.md explains the fields.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
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
        rounds=(3, "timed runs of each case and side; 0 with --cold: cold runs only"),
        warm_up=(0, "runs before those, not timed"),
        forks=(1, "times that all is done, with new processes"),
        memory=("4g", "heap of each driver"),
        codec=("lz4", "spark.io.compression.codec of all sides"),
    )
    parser.add_argument("--cold", action="store_true", help="first time new drivers that do the work once")
    program.add_pairs(parser, "--conf", "KEY=VALUE", "a Spark setting of all sides")
    program.add_pairs(parser, "--option", "NAME=VALUE", "spark.shuffle.flight.NAME")
    parser.add_argument(
        "--jfr", metavar="DIR", help="record each driver with Java Flight Recorder into DIR/SIDE.jfr; of the last fork"
    )
    parser.add_argument("--input", metavar="DIR", help="where the input is kept (default: build/bench)")
    options = parser.parse_args(arguments)
    if min(options.rounds or int(options.cold), options.forks) < 1:
        parser.error("--rounds and --forks: at least 1 (without --cold)")
    options.only = program.known(parser, "--only", "group", options.only, GROUPS)
    options.sides = program.known(parser, "--sides", "side", options.sides, ALL_SIDES)
    return options


def measure(options: argparse.Namespace, scratch: Path) -> Iterator[dict[str, Any]]:
    """Run everything; after each case the report of all so far."""
    cases = prepare(Path(options.input or ROOT / "build" / "bench"), options)
    about = program.heading("spark_suite", {k: v for k, v in vars(options).items() if k not in PLACES})
    cold: dict[str, Timing] = {}
    warm: dict[str, Timing] = {}
    pushed = 0
    for number in range(0 if options.cold else 1, (options.forks if options.rounds else 0) + 1):
        own = scratch / str(number)
        own.mkdir()
        with ServerProcess(own / "data", own / "server.log") as server:
            for _ in (
                time_warm(cases, server, options, own, warm) if number else time_cold(cases, server, options, own, cold)
            ):
                now = {"bytes_pushed": pushed + server.status().bytes_pushed}
                yield (
                    about
                    | now
                    | reporting.figures(warm.values(), options.rounds)
                    | ({"cold": reporting.figures(cold.values(), 1)} if options.cold else {})
                )
            pushed += server.status().bytes_pushed


def time_warm(
    cases: list[Case], server: ServerProcess, options: argparse.Namespace, scratch: Path, timings: dict[str, Timing]
) -> Iterator[None]:
    """One fork: each case of all sides, whose drivers live through all of it."""
    with ExitStack() as running:
        sides = [start(running, name, server, options, scratch / name) for name in options.sides]
        for case in in_turn(cases, sides):
            timing = timings.setdefault(case.name, Timing(case.name, case.group))
            time_case(case, sides, options.rounds, options.warm_up, timing)
            yield


def time_cold(
    cases: list[Case], server: ServerProcess, options: argparse.Namespace, scratch: Path, timings: dict[str, Timing]
) -> Iterator[None]:
    """All forks: of each side a new driver for the cases of a group, once; in each fork another side is the first."""
    names = options.sides
    with ExitStack() as running:  # an application before these
        start(running, FLIGHT, server, options, scratch / "first", {}).driver.call(job.check_tiny, shuffles=1)
    for fork in range(options.forks):
        for (group, _), its in groupby(cases, key=lambda case: (case.group, tuple(case.sort_conf.items()))):
            parts = [part for case in its for part in case.cold()]
            for name in names[fork % len(names) :] + names[: fork % len(names)]:
                with ExitStack() as running:
                    conf = parts[0].sort_conf if name == SORT else {}
                    began = time.perf_counter()
                    side = start(running, name, server, options, scratch / f"{fork}-{group}-{name}", conf)
                    started = timings.setdefault(f"start of {group}", Timing(f"start of {group}", "start"))
                    started.add(name, time.perf_counter() - began, process.cpu_seconds(side.processes["jvm"]))
                    for part in parts:
                        timing = timings.setdefault(part.name, Timing(part.name, part.group))
                        say(f"cold {part.name}, fork {fork + 1}: {name} {_run(part, side, timing):.2f} s")
            yield


def start(
    running: ExitStack,
    name: str,
    server: ServerProcess,
    options: argparse.Namespace,
    scratch: Path,
    cold: dict[str, str] | None = None,
) -> Side:
    """One of `ALL_SIDES`, ready; for a cold run with settings of its own."""
    scratch.mkdir()
    conf = local_conf(scratch, memory=options.memory, partitions=options.partitions)
    conf |= {"spark.sql.adaptive.enabled": "true", "spark.io.compression.codec": options.codec}
    conf |= (NO_COMPRESSION if name.endswith(PLAIN) else {}) | (cold or {})
    if cold is None:
        # The full collections after a run would leave the next one with a small heap, which G1 then marks all the time;
        # and one that still grows has a page fault for each 4 KiB, in some runs and not in others.
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
    driver = running.enter_context(SparkDriver(conf | program.pairs(options.conf), scratch / "spark.log"))
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
