"""Flight Shuffle against Spark's sort shuffle, in turn: ``python -m bench.spark_shuffle``.

One query: scan parquet, repartition by key, throw the rows away. Each side is a driver process that lives through all
rounds (so both JVMs are equally warm), and only one of them works at a time: A B A B ... The server runs all the time,
on the same cores. Everything else (scan, settings, codec, input) is the same. Before the timed rounds both sides answer
a check, row counts and digests per partition, which must agree; that and some runs more are the warm-up.

The JSON goes to standard output, progress to standard error. docs/benchmarks/README.md explains the fields.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench import spark_shuffle_job as job
from bench.harness import machine, process
from bench.harness.ending import unwind_when_told_to_end
from bench.harness.files import once
from bench.harness.server import ServerProcess
from bench.harness.spark import local_conf
from bench.harness.spark_driver import ROOT, SparkDriver
from shuffle_plugins.spark import spark_conf

SORT, FLIGHT = "sort", "flight"
RUN_TIMEOUT_S = 1800.0


@dataclass(slots=True)
class Side:
    """One of the two variants, and what its timed runs took."""

    name: str
    driver: SparkDriver
    processes: dict[str, int]
    runs: list[job.Run] = field(default_factory=list)
    cpu_s: dict[str, list[float]] = field(default_factory=dict)
    threads: dict[str, defaultdict[str, float]] = field(default_factory=dict)

    def run(self, directory: Path, partitions: int) -> job.Run:
        """One run, recorded with the processor time of each of the side's processes."""
        before = {name: process.cpu_seconds(pid) for name, pid in self.processes.items()}
        threads = {name: process.cpu_by_thread_name(pid) for name, pid in self.processes.items()}
        done: job.Run = self.driver.call(
            job.run, timeout=RUN_TIMEOUT_S, directory=str(directory), partitions=partitions
        )
        for name, pid in self.processes.items():
            self.cpu_s.setdefault(name, []).append(process.cpu_seconds(pid) - before[name])
            for thread, spent in process.cpu_by_thread_name(pid).items():
                sums = self.threads.setdefault(name, defaultdict(float))
                sums[thread] += spent - threads[name].get(thread, 0.0)
        self.runs.append(done)
        self.driver.call(job.tidy)
        return done

    def forget(self) -> None:
        """Drop what was recorded so far: it was the warm-up."""
        self.runs, self.cpu_s, self.threads = [], {}, {}

    def seconds(self) -> list[float]:
        return [run.seconds for run in self.runs]

    def report(self) -> dict[str, Any]:
        """The side's part of the JSON."""
        return {
            "median_s": round(statistics.median(self.seconds()), 3),
            "seconds": [round(seconds, 3) for seconds in self.seconds()],
            "median_cpu_s": {name: round(statistics.median(spent), 2) for name, spent in self.cpu_s.items()},
            "stages": [_mean_stage(stages) for stages in zip(*(run.stages for run in self.runs), strict=True)],
            "threads_cpu_s": {name: self._per_run(threads) for name, threads in self.threads.items()},
        }

    def _per_run(self, threads: dict[str, float]) -> dict[str, float]:
        means = {thread: round(spent / len(self.runs), 2) for thread, spent in threads.items()}
        return dict(sorted(((t, s) for t, s in means.items() if s > 0), key=lambda pair: -pair[1]))


def main() -> int:
    options = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="spark-shuffle-", dir=options.scratch) as scratch:
        report = measure(options, Path(scratch))
    text = json.dumps(report, indent=2)
    print(text)
    if options.json:
        Path(options.json).write_text(text + "\n")
    ratio: float = report["ratio_of_medians"]
    limit: float | None = options.limit
    return int(limit is not None and ratio > limit)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_shuffle", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000, help="108 bytes each (default: 10,000,000)")
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each side (default: 5)")
    parser.add_argument("--warm-up", type=int, default=3, metavar="N", help="runs before those, not timed (default: 3)")
    parser.add_argument("--partitions", type=int, default=64, help="reduce partitions (default: 64)")
    parser.add_argument(
        "--codec", default="lz4", help="spark.io.compression.codec of both sides, or none (default: lz4)"
    )
    parser.add_argument("--memory", default="4g", help="heap of each driver (default: 4g)")
    parser.add_argument("--json", metavar="FILE", help="write the JSON to a file too")
    parser.add_argument("--limit", type=float, help="exit with status 1 when the ratio is above this")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a Spark setting of both sides"
    )
    parser.add_argument("--jfr", metavar="DIR", help="record each driver with Java Flight Recorder into DIR/SIDE.jfr")
    parser.add_argument("--input", metavar="DIR", help="where the input is kept (default: build/bench)")
    parser.add_argument("--scratch", metavar="DIR", help="for shuffle data of both sides (default: the system's)")
    return parser.parse_args()


def measure(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Run everything; the report."""
    limits = machine.limits(scratch)
    directory = prepare_input(Path(options.input or ROOT / "build" / "bench"), options.rows)
    load = machine.load()
    with ExitStack() as running:
        server = running.enter_context(ServerProcess(scratch / "data", scratch / "server.log"))
        sort = start_side(running, SORT, {}, options, scratch)
        flight = start_side(running, FLIGHT, spark_conf(server.control, fallback="never"), options, scratch)
        flight.processes["server"] = server.pid
        rows = warm_up([sort, flight], directory, options)
        for number in range(1, options.rounds + 1):
            times = [side.run(directory, options.partitions).seconds for side in (sort, flight)]
            say(f"round {number}: sort {times[0]:.2f} s, flight {times[1]:.2f} s, ratio {times[1] / times[0]:.2f}")
        status = server.status()
    shuffled = {side.name: side.runs[0].stages[0].shuffle_write_bytes for side in (sort, flight)}
    ratio = statistics.median(flight.seconds()) / statistics.median(sort.seconds())
    cpu = {side.name: sum(statistics.median(spent) for spent in side.cpu_s.values()) for side in (sort, flight)}
    return {
        "benchmark": "spark_shuffle",
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine.facts() | {"load_before": round(load, 2)},
        "limits_gib_s": limits,
        "parameters": {
            name: getattr(options, name)
            for name in ("rows", "rounds", "warm_up", "partitions", "codec", "memory", "conf")
        },
        "rows_checked": rows,
        "bytes": {"rows": rows * job.ROW_BYTES, "shuffled": shuffled, "pushed": status.bytes_pushed},
        "ratio_of_medians": round(ratio, 3),
        "ratio_of_cpu": round(cpu[FLIGHT] / cpu[SORT], 3),
        "ratios": [round(b / a, 3) for a, b in zip(sort.seconds(), flight.seconds(), strict=True)],
        "sides": {side.name: side.report() for side in (sort, flight)},
    }


def prepare_input(directory: Path, rows: int) -> Path:
    """The input of that many rows, written if it is not there."""
    target = directory / f"spark_shuffle-{rows}"

    def write(part: Path) -> None:
        say(f"writing the input to {target}")
        job.write_input(part, rows)

    return once(target, write)


def start_side(running: ExitStack, name: str, conf: dict[str, str], options: argparse.Namespace, scratch: Path) -> Side:
    own = scratch / name
    own.mkdir()
    base = local_conf(own, memory=options.memory, partitions=options.partitions)
    base["spark.sql.adaptive.enabled"] = "false"
    # The full collections after a run would leave the next one with a small heap, which G1 then marks all the time; and
    # one that still grows has a page fault for each 4 KiB, in some runs and not in others.
    base["spark.driver.extraJavaOptions"] += f" -Xms{options.memory} -XX:+AlwaysPreTouch"
    if options.codec == "none":
        base["spark.shuffle.compress"] = "false"
    else:
        base["spark.io.compression.codec"] = options.codec
    if options.jfr:
        Path(options.jfr).mkdir(parents=True, exist_ok=True)
        recording = Path(options.jfr).resolve() / f"{name}.jfr"
        base["spark.driver.extraJavaOptions"] += f" -XX:StartFlightRecording=filename={recording},settings=profile"
    given = dict(pair.split("=", 1) for pair in options.conf)
    driver = running.enter_context(SparkDriver(base | conf | given, own / "spark.log"))
    return Side(name, driver, {"jvm": driver.call(job.jvm_pid)})


def warm_up(sides: list[Side], directory: Path, options: argparse.Namespace) -> int:
    """Check that both sides answer alike, and run each some times. Returns the number of rows."""
    arguments = {"directory": str(directory), "partitions": options.partitions}
    checks = [side.driver.call(job.checksum, timeout=RUN_TIMEOUT_S, **arguments) for side in sides]
    rows: int = sum(row[1] for row in checks[0])
    if checks[0] != checks[1] or rows != options.rows:
        raise SystemExit(f"the two sides differ, or rows are missing: {rows} of {options.rows}")
    for side in sides:
        side.driver.call(job.tidy)
        for _ in range(options.warm_up):
            warm = side.run(directory, options.partitions)
            say(f"warm-up: {side.name} {warm.seconds:.2f} s")
        side.forget()
    return rows


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _mean_stage(stages: tuple[job.Stage, ...]) -> dict[str, float]:
    means = {name: statistics.mean(asdict(stage)[name] for stage in stages) for name in asdict(stages[0])}
    return {name: round(mean, 3) if name.endswith("_s") else round(mean) for name, mean in means.items()}


if __name__ == "__main__":
    unwind_when_told_to_end()
    sys.exit(main())
