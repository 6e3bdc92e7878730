"""A Python program that shuffles Arrow data, beside dask, Ray Data and Spark: ``python -m bench.python_shuffle``.

Flight Shuffle runs three times: its tasks are on the server's host, so that they hand files over; over the wire; and
the first again, reading parquet.

One piece of work for all: read the same rows, shuffle every row by the hash of a key into so many partitions, read
every partition. Flight Shuffle and dask read Arrow files, mapped into memory; Spark, which cannot, reads parquet, and
is compared with Flight Shuffle reading that. Each side has as many workers as there are cores (task processes, dask's
worker processes, threads of ``local[*]``), which live through all rounds, and only one side works at a time: A B C A
B C ... The Flight Shuffle server runs all the time, on the same cores. Before the timed rounds every side's result is
checked (rows, sums, that no key is in two partitions), which is part of the warm-up.

The JSON goes to standard output, progress to standard error. docs/benchmarks/README.md explains the fields.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import astuple, dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench import spark_jobs as job
from bench.harness import process, program
from bench.harness.server import ServerProcess
from bench.harness.spark import local_conf
from bench.harness.spark_driver import ROOT, SparkDriver
from bench.python_shuffle.dask_side import DaskSide
from bench.python_shuffle.tasks import Digest, FlightSide, FrameSide, files_of, prepare_arrow
from bench.spark_suite.cases import prepare_rows
from shuffle_transport.bench.machine import GIB
from shuffle_transport.progress import say

WORKERS = os.cpu_count() or 1
FLIGHT, WIRE, FROM_PARQUET, DASK, RAY, SPARK = "flight", "flight_wire", "flight_parquet", "dask", "ray", "spark"
COMPARED = {FLIGHT: (WIRE, DASK, RAY), WIRE: (DASK, RAY), FROM_PARQUET: (SPARK,)}  # those that read the same
RECYCLE = "4g"  # two shuffles at a time leave their files behind
ROW_BYTES = 3 * 8 + job.TEXT  # what Arrow takes, without offsets
RUN_TIMEOUT_S = 1800.0


@dataclass(slots=True)
class Side:
    """One of them: how to run it, how to check it, whose processor time counts, and what its timed runs took.

    `run` returns the parts of the wall time in seconds, which add up to all of it. `tidy` is not timed.
    """

    name: str
    run: Callable[[], dict[str, float]]
    check: Callable[[], Digest]
    tidy: Callable[[], object]
    processes: dict[str, list[int]]
    runs: list[dict[str, float]] = field(default_factory=list)
    cpu_s: dict[str, list[float]] = field(default_factory=dict)

    def timed(self) -> float:
        """One run, recorded."""
        before = {name: _cpu(pids) for name, pids in self.processes.items()}
        self.runs.append(self.run())
        for name, pids in self.processes.items():
            self.cpu_s.setdefault(name, []).append(_cpu(pids) - before[name])
        self.tidy()
        return self.seconds()[-1]

    def forget(self) -> None:
        """Drop what was recorded so far: it was the warm-up."""
        self.runs, self.cpu_s = [], {}

    def seconds(self) -> list[float]:
        return [sum(run.values()) for run in self.runs]

    def median(self) -> float:
        return statistics.median(self.seconds())

    def report(self, data_bytes: int) -> dict[str, Any]:
        """The side's part of the JSON."""
        return {
            "median_s": round(self.median(), 3),
            "seconds": [round(seconds, 3) for seconds in self.seconds()],
            "gib_s": round(data_bytes / self.median() / GIB, 6),
            "median_parts_s": {
                part: round(statistics.median(run[part] for run in self.runs), 3) for part in self.runs[0]
            },
            "median_cpu_s": {name: round(statistics.median(spent), 2) for name, spent in self.cpu_s.items()},
        }


def main() -> int:
    options = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="python-shuffle-", dir=options.scratch) as scratch:
        program.publish(measure(options, Path(scratch)), options.json)
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = program.parser("python_shuffle", __doc__)
    others = (WIRE, FROM_PARQUET, DASK, *([RAY] if find_spec("ray") else []), SPARK)
    parser.add_argument(
        "--sides", nargs="+", choices=others, default=others, help="beside the side flight: all; ray where it is found"
    )
    program.add_options(
        parser,
        rows=(10_000_000, "88 bytes each"),
        rounds=(5, "timed runs of each side"),
        partitions=(64, "reduce partitions"),
        codec=("lz4", "Flight Shuffle's compression"),
        memory=("4g", "heap of the Spark driver"),
    )
    parser.add_argument("--input", metavar="DIR", help="where the input is kept (default: build/bench)")
    return parser.parse_args()


def measure(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Run everything; the report."""
    parquet = prepare_rows(Path(options.input or ROOT / "build" / "bench"), options.rows)
    arrow = prepare_arrow(parquet)
    names = ("rows", "rounds", "partitions", "codec", "memory")
    report = program.heading("python_shuffle", {name: getattr(options, name) for name in names})
    report["machine"] |= {name: version(name) for name in ("pandas", *({DASK, RAY} & set(options.sides)))}
    with ExitStack() as running:
        server = running.enter_context(ServerProcess(scratch / "data", scratch / "server.log", ["--recycle", RECYCLE]))
        others: dict[str, Callable[[], Side]] = {
            WIRE: lambda: flight_side(running, server, arrow, options, WIRE),
            FROM_PARQUET: lambda: flight_side(running, server, parquet, options, FROM_PARQUET),
            DASK: lambda: frame_side(DASK, running.enter_context(DaskSide(scratch, workers=WORKERS)), arrow, options),
            RAY: lambda: frame_side(RAY, running.enter_context(start_ray()), arrow, options),
            SPARK: lambda: spark_side(running, scratch, parquet, options),
        }
        flight = flight_side(running, server, arrow, options, FLIGHT)
        sides = [flight, *(others[name]() for name in others if name in options.sides)]
        checked = warm_up(sides, options.rows)
        for number in range(1, options.rounds + 1):
            times = {side.name: side.timed() for side in sides}
            say(f"round {number}: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in times.items()))
    data = options.rows * ROW_BYTES
    return report | {
        "checked": {name: getattr(checked, name) for name in ("rows", "keys")},
        "bytes": data,
        "times_as_fast_as": compared(sides),
        "sides": {side.name: side.report(data) for side in sides},
    }


def compared(sides: list[Side]) -> dict[str, dict[str, float]]:
    """By side, by other side, how many times as long the other takes: those that ran and read the same."""
    ran = {side.name: side for side in sides}
    return {
        name: {other: round(ran[other].median() / ran[name].median(), 2) for other in others if other in ran}
        for name, others in COMPARED.items()
        if name in ran and not ran.keys().isdisjoint(others)
    }


def flight_side(
    running: ExitStack, server: ServerProcess, directory: Path, options: argparse.Namespace, name: str
) -> Side:
    hand_over = "off" if name == WIRE else "auto"
    side = running.enter_context(
        FlightSide(server.control, name, workers=WORKERS, codec=options.codec, hand_over=hand_over)
    )
    files, handles = files_of(directory), []

    def run() -> dict[str, float]:
        started = time.perf_counter()
        handles.append(side.write(files, options.partitions))
        written = time.perf_counter()
        rows = side.count(handles[-1])
        ended = time.perf_counter()
        _expect(name, rows, options.rows)
        return {"write": written - started, "read": ended - written}

    def check() -> Digest:
        handles.append(side.write(files, options.partitions))
        return side.check(handles[-1])

    return Side(name, run, check, lambda: side.forget(handles.pop()), {"tasks": side.pids, "server": [server.pid]})


def frame_side(name: str, side: FrameSide, directory: Path, options: argparse.Namespace) -> Side:
    """One that reads, shuffles and counts in one go."""

    def run() -> dict[str, float]:
        started = time.perf_counter()
        rows = side.count(directory, options.partitions)
        ended = time.perf_counter()
        _expect(name, rows, options.rows)
        return {"all": ended - started}

    return Side(name, run, lambda: side.check(directory, options.partitions), lambda: None, side.processes)


def start_ray() -> FrameSide:
    from bench.python_shuffle.ray_side import RaySide  # Ray need not be installed

    return RaySide(workers=WORKERS)


def spark_side(running: ExitStack, scratch: Path, directory: Path, options: argparse.Namespace) -> Side:
    own = scratch / SPARK
    own.mkdir()
    conf = local_conf(own, memory=options.memory, partitions=options.partitions)
    conf["spark.sql.adaptive.enabled"] = "false"
    driver = running.enter_context(SparkDriver(conf, own / "spark.log"))
    given = {"directory": str(directory), "partitions": options.partitions, "timeout": RUN_TIMEOUT_S}

    def run() -> dict[str, float]:
        done: job.Run = driver.call(job.repartition, **given)
        return {"all": done.seconds}

    return Side(
        SPARK,
        run,
        lambda: Digest(*driver.call(job.digest, **given)),
        lambda: driver.call(job.tidy),
        {"jvm": [driver.call(job.jvm_pid)]},
    )


def warm_up(sides: list[Side], rows: int) -> Digest:
    """Check that all sides answer alike and that no key is in two partitions, and run each once."""
    checks = {}
    for side in sides:
        checks[side.name] = side.check()
        side.tidy()
        say(f"warm-up: {side.name} {side.timed():.2f} s")
        side.forget()
    digest = checks[FLIGHT]
    if set(checks.values()) != {digest} or digest.rows != rows:
        raise SystemExit("the sides differ: " + ", ".join(f"{name} {astuple(d)}" for name, d in checks.items()))
    return digest


def _expect(name: str, rows: int, expected: int) -> None:
    if rows != expected:
        raise SystemExit(f"{name}: {rows} of {expected} rows arrived")


def _cpu(pids: list[int]) -> float:
    return sum(map(process.cpu_seconds, pids))


if __name__ == "__main__":
    program.run(main)
