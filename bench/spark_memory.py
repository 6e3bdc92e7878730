"""Flight Shuffle and Spark's sort shuffle with little memory, in turn: ``python -m bench.spark_memory``.

A point is a number of cores (``local[N]``), a heap and a number of partitions. At each point one query (rows made in
the map tasks, repartitioned by key, summed up) runs on both sides in turn, in drivers that differ in nothing but the
shuffle. Points with the same cores and heap share their drivers. A side whose job fails has failed at that point, and
gets a new driver for the next one.

The table goes to standard output; docs/benchmarks/README.md explains it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path
from typing import Any

from bench import spark_memory_job as job
from bench.harness import machine
from bench.harness.ending import unwind_when_told_to_end
from bench.harness.server import ServerProcess
from bench.harness.spark import local_conf
from bench.harness.spark_driver import JobFailed, SparkDriver
from bench.spark_memory_plot import draw
from bench.spark_shuffle_job import tidy
from shuffle_plugins.spark import spark_conf

SORT, FLIGHT = "sort", "flight"
RUN_TIMEOUT_S = 900.0
CORES, MEMORY, PARTITIONS = (2, 8, 32), ("512m", "1g"), (8, 200, 1000)


@dataclass(frozen=True, slots=True)
class Point:
    """One combination."""

    cores: int
    memory: str
    partitions: int

    @classmethod
    def parse(cls, text: str) -> Point:
        cores, memory, partitions = text.split(":")
        return cls(int(cores), memory, int(partitions))


class Side:
    """One of the two shuffles with certain cores and heap; its driver is replaced when a job has failed in it."""

    def __init__(self, name: str, conf: dict[str, str], directory: Path) -> None:
        self.name = name
        self._conf, self._directory = conf, directory
        self._drivers = 0
        self._driver: SparkDriver | None = None

    def run(self, **work: int) -> job.Run | str:
        """A run, or the first line of why it failed."""
        if self._driver is None:
            self._drivers += 1
            self._driver = SparkDriver(self._conf, self._directory / f"spark-{self._drivers}.log")
        try:
            done: job.Run = self._driver.call(job.run, timeout=RUN_TIMEOUT_S, **work)
            self._driver.call(tidy)
        except (JobFailed, TimeoutError) as error:
            self.close()
            lines = [line for line in str(error).splitlines() if "Error" in line or "Exception" in line]
            return (lines or str(error).splitlines() or ["failed"])[0][:300]
        return done

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None


def main() -> int:
    options = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="spark-memory-", dir=options.scratch) as scratch:
        report = measure(options, Path(scratch))
    print(table(report))
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=2) + "\n")
    if options.plot:
        Path(options.plot).write_text(draw(report))
    return int(any(FLIGHT in point["failed"] and SORT not in point["failed"] for point in report["points"]))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_memory", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--point",
        action="append",
        type=Point.parse,
        metavar="CORES:MEMORY:PARTITIONS",
        help=f"may be repeated (default: all of {CORES} x {MEMORY} x {PARTITIONS})",
    )
    parser.add_argument("--rows", type=int, default=4_000_000, help="of 3 numbers each (default: 4,000,000)")
    parser.add_argument("--maps", type=int, help="map tasks (default: two for each core)")
    parser.add_argument("--rounds", type=int, default=3, help="timed runs of each side (default: 3)")
    parser.add_argument("--warm-up", type=int, default=1, metavar="N", help="runs before those (default: 1)")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of both sides")
    parser.add_argument("--json", metavar="FILE", help="write a report")
    parser.add_argument("--plot", metavar="FILE", help="write a picture (SVG)")
    parser.add_argument("--scratch", metavar="DIR", help="for shuffle data of both sides (default: the system's)")
    options = parser.parse_args()
    options.point = options.point or [Point(*each) for each in product(CORES, MEMORY, PARTITIONS)]
    return options


def measure(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Run everything; the report."""
    load = machine.load()
    found = []
    with ServerProcess(scratch / "data", scratch / "server.log") as server:
        ordered = sorted(options.point, key=lambda point: (point.cores, point.memory))
        for number, (_, same) in enumerate(groupby(ordered, key=lambda point: (point.cores, point.memory))):
            found += measure_alike(list(same), options, server.control, scratch / str(number))
    return {
        "benchmark": "spark_memory",
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine.facts() | {"load_before": round(load, 2)},
        "parameters": {name: getattr(options, name) for name in ("rows", "maps", "rounds", "warm_up", "conf")},
        "points": found,
    }


def measure_alike(points: list[Point], options: argparse.Namespace, server: str, scratch: Path) -> list[dict[str, Any]]:
    """Points with the same cores and heap."""
    given = dict(pair.split("=", 1) for pair in options.conf)
    shuffles = {SORT: {}, FLIGHT: spark_conf(server, fallback="never")}
    with ExitStack() as running:
        sides = []
        for name, shuffle in shuffles.items():
            directory = scratch / name
            directory.mkdir(parents=True)
            base = local_conf(directory, memory=points[0].memory)
            own = {"spark.master": f"local[{points[0].cores}]", "spark.sql.adaptive.enabled": "false"}
            side = Side(name, base | own | shuffle | given, directory)
            running.callback(side.close)
            sides.append(side)
        return [measure_point(point, sides, options) for point in points]


def measure_point(point: Point, sides: list[Side], options: argparse.Namespace) -> dict[str, Any]:
    work = {"rows": options.rows, "maps": options.maps or 2 * point.cores, "partitions": point.partitions}
    runs: dict[str, list[job.Run]] = {side.name: [] for side in sides}
    failed: dict[str, str] = {}
    for number in range(options.warm_up + options.rounds):
        for side in sides:
            if side.name in failed:
                continue
            done = side.run(**work)
            if isinstance(done, str):
                failed[side.name] = done
            elif number >= options.warm_up:
                runs[side.name].append(done)
            say(f"{point}: {side.name} {done if isinstance(done, str) else f'{done.seconds:.2f} s'}")
    seconds = {name: statistics.median(run.seconds for run in done) for name, done in runs.items() if done}
    written = {name: done[-1].written for name, done in runs.items() if done}
    both = not failed and len(seconds) == len(sides)
    return {
        "cores": point.cores,
        "memory": point.memory,
        "partitions": point.partitions,
        "failed": failed,
        "seconds": {name: [round(run.seconds, 3) for run in done] for name, done in runs.items()},
        "written": written,
        "spilled": {name: done[-1].spilled for name, done in runs.items() if done},
        "ratio": round(seconds[FLIGHT] / seconds[SORT], 3) if both else None,
        "bytes_ratio": round(written[FLIGHT] / written[SORT], 3) if both else None,
    }


def table(report: dict[str, Any]) -> str:
    """As Markdown."""
    lines = [
        "| cores | heap | partitions | sort shuffle | Flight Shuffle | time | bytes |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for point in report["points"]:
        cells = [
            "failed" if name in point["failed"] else f"{statistics.median(point['seconds'][name]):.2f} s"
            for name in (SORT, FLIGHT)
        ]
        ratios = ["" if point[name] is None else f"{point[name]:.2f}" for name in ("ratio", "bytes_ratio")]
        where = f"{point['cores']} | {point['memory']} | {point['partitions']}"
        lines.append(f"| {where} | {cells[0]} | {cells[1]} | {ratios[0]} | {ratios[1]} |")
    return "\n".join(lines)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    unwind_when_told_to_end()
    sys.exit(main())
