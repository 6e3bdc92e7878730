"""Flight Shuffle and Spark's sort shuffle with little memory, in turn: ``python -m bench.spark_memory``.

A point is a number of cores (``local[N]``), a heap and a number of partitions. At each point one query (rows made in
the map tasks, repartitioned by key, summed up) runs on both sides in turn, in drivers that differ in nothing but the
shuffle. Points with the same cores and heap share their drivers. A side whose job fails has failed at that point, and
gets a new driver for the next one.

A table goes to standard error, the JSON to standard output; docs/benchmarks/README.md explains them.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import groupby, product
from pathlib import Path
from typing import Any

from bench import spark_jobs as job
from bench.harness import process, program
from bench.harness.limits import Limits
from bench.harness.server import ServerProcess
from bench.harness.spark import local_conf
from bench.harness.spark_driver import JobFailed, SparkDriver
from shuffle_plugins.spark import spark_conf
from shuffle_transport.progress import say

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
        self.heap_mib: float | None = None  # when a run has ended, while Spark keeps its shuffle

    def driver(self) -> SparkDriver:
        if self._driver is None:
            self._drivers += 1
            self._driver = SparkDriver(self._conf, self._directory / f"spark-{self._drivers}.log")
        return self._driver

    def pid(self) -> int:
        """Of the JVM."""
        pid: int = self.driver().call(job.jvm_pid)
        return pid

    def run(self, **work: int) -> job.Run | str:
        """A run, or the first line of why it failed."""
        driver = self.driver()
        try:
            done: job.Run = driver.call(job.sums, timeout=RUN_TIMEOUT_S, **work)
            self.heap_mib = driver.call(job.heap_mib)
            driver.call(job.tidy)
        except (JobFailed, TimeoutError) as error:
            self.close()
            lines = [line for line in str(error).splitlines() if "Error" in line or "Exception" in line]
            return (lines or str(error).splitlines() or ["failed"])[0][:300]
        return done

    def peak_mib(self) -> int | None:
        """The most memory that the driver's JVM has had; None: it has ended."""
        return None if self._driver is None else process.peak_mib(self.pid())

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None


def main() -> int:
    options = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="spark-memory-", dir=options.scratch) as scratch:
        report = measure(options, Path(scratch))
    say(table(report))
    program.publish(report, options.json)
    return int(any(FLIGHT in point["failed"] and SORT not in point["failed"] for point in report["points"]))


def parse_arguments() -> argparse.Namespace:
    parser = program.parser("spark_memory", __doc__)
    parser.add_argument(
        "--point",
        action="append",
        type=Point.parse,
        metavar="CORES:MEMORY:PARTITIONS",
        help=f"may be repeated (default: all of {CORES} x {MEMORY} x {PARTITIONS})",
    )
    parser.add_argument("--maps", type=int, help="map tasks (default: two for each core)")
    program.add_options(
        parser,
        rows=(4_000_000, "of 3 numbers each"),
        width=(0, "random numbers beside them, which do not compress"),
        page_cache=(0, "MiB of page cache for server and drivers together (needs root; 0: the machine's)"),
        sides=(f"{SORT},{FLIGHT}", "that run"),
        rounds=(3, "timed runs of each side"),
        warm_up=(1, "runs before those"),
    )
    program.add_pairs(parser, "--conf", "KEY=VALUE", "a Spark setting of both sides")
    options = parser.parse_args()
    options.sides = program.known(parser, "--sides", "side", options.sides, (SORT, FLIGHT))
    options.point = options.point or [Point(*each) for each in product(CORES, MEMORY, PARTITIONS)]
    return options


def measure(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Run everything; the report."""
    named = ("rows", "width", "page_cache", "maps", "sides", "rounds", "warm_up", "conf")
    parameters = {name: getattr(options, name) for name in named}
    report, found = program.heading("spark_memory", parameters), []
    with ServerProcess(scratch / "data", scratch / "server.log") as server:
        ordered = sorted(options.point, key=lambda point: (point.cores, point.memory))
        for number, (_, same) in enumerate(groupby(ordered, key=lambda point: (point.cores, point.memory))):
            found += measure_alike(list(same), options, server, scratch / str(number))
    return report | {"points": found}


def measure_alike(
    points: list[Point], options: argparse.Namespace, server: ServerProcess, scratch: Path
) -> list[dict[str, Any]]:
    """Points with the same cores and heap."""
    shuffles = {SORT: {}, FLIGHT: spark_conf(server.control, fallback="never")}
    with ExitStack() as running:
        sides: list[Side] = []
        for name in options.sides:
            directory = scratch / name
            directory.mkdir(parents=True)
            base = local_conf(directory, memory=points[0].memory)
            if options.page_cache:  # the heap is the JVM's from the start, so that it takes none of the page cache
                base["spark.driver.extraJavaOptions"] += f" -Xms{points[0].memory} -XX:+AlwaysPreTouch"
            own = {"spark.master": f"local[{points[0].cores}]", "spark.sql.adaptive.enabled": "false"}
            side = Side(name, base | own | shuffles[name] | program.pairs(options.conf), directory)
            running.callback(side.close)
            sides.append(side)
        if options.page_cache:
            limits = Limits(server.pid, scratch)
            running.callback(limits.remove)
            for side in sides:
                limits.add(side.pid())
            limits.page_cache(options.page_cache << 20)
        return [measure_point(point, sides, options, server.pid) for point in points]


def measure_point(point: Point, sides: list[Side], options: argparse.Namespace, server: int) -> dict[str, Any]:
    work = {"rows": options.rows, "width": options.width, "partitions": point.partitions}
    work["maps"] = options.maps or 2 * point.cores
    runs: dict[str, list[job.Run]] = {side.name: [] for side in sides}
    failed: dict[str, str] = {}
    for number in range(options.warm_up + options.rounds):
        for side in (each for each in sides if each.name not in failed):
            done = side.run(**work)
            if isinstance(done, str):
                failed[side.name] = done
            elif number >= options.warm_up:
                runs[side.name].append(done)
            say(f"{point}: {side.name} {done if isinstance(done, str) else f'{done.seconds:.2f} s'}")
    seconds = {name: statistics.median(run.seconds for run in done) for name, done in runs.items() if done}
    last = {name: done[-1].stages for name, done in runs.items() if done}
    written = {name: max(stage.shuffle_write_bytes for stage in stages) for name, stages in last.items()}
    both = not failed and seconds.keys() == {SORT, FLIGHT}
    return asdict(point) | {
        "failed": failed,
        "seconds": {name: [round(run.seconds, 3) for run in done] for name, done in runs.items()},
        "written": written,
        "peak_mib": {side.name: side.peak_mib() for side in sides} | {"server": process.peak_mib(server)},
        "heap_mib": {side.name: side.heap_mib for side in sides},
        "spilled": {name: sum(stage.spilled_bytes for stage in stages) for name, stages in last.items()},
        "ratio": round(seconds[FLIGHT] / seconds[SORT], 3) if both else None,
        "bytes_ratio": round(written[FLIGHT] / written[SORT], 3) if both else None,
    }


def table(report: dict[str, Any]) -> str:
    """As Markdown."""
    rows = []
    for point in report["points"]:
        medians = {name: f"{statistics.median(runs):.2f} s" for name, runs in point["seconds"].items() if runs}
        cells = ["failed" if name in point["failed"] else medians.get(name, "") for name in (SORT, FLIGHT)]
        ratios = ["" if point[name] is None else f"{point[name]:.2f}" for name in ("ratio", "bytes_ratio")]
        rows.append([str(point["cores"]), point["memory"], str(point["partitions"]), *cells, *ratios])
    return program.table(("cores", "heap", "partitions", "sort shuffle", "Flight Shuffle", "time", "bytes"), rows)


if __name__ == "__main__":
    program.run(main)
