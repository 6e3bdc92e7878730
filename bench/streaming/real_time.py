"""Latency in Spark's real-time mode: ``python -m bench.streaming.real_time --json FILE``.

The same queries through Spark's own shuffle manager for that mode and through Flight Shuffle's, which relays by a
worker, or on a further side by several (`--workers`). Each side is a driver that lives through all rounds, and only one
of them works at a time: A B A B ... All must give the same rows. The JSON goes to standard output, progress to standard
error.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from bench.harness import program
from bench.harness.cluster import ClusterProcesses
from bench.harness.server import ServerProcess
from bench.harness.spark import local_conf
from bench.harness.spark_driver import SparkDriver
from bench.streaming import real_time_job as job
from shuffle_plugins.spark import spark_conf
from shuffle_transport.progress import say

Points = dict[str, float]

OWN, FLIGHT, WORKERS = "spark", "flight", "workers"
POINTS = {"p50_us": 50, "p90_us": 90, "p99_us": 99}


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    program.publish(measure(options), options.json)
    return 0


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = program.parser("streaming.real_time", __doc__)
    parser.add_argument("--queries", nargs="+", choices=sorted(job.QUERIES), default=sorted(job.QUERIES))
    program.add_options(
        parser,
        rate=(500, "rows a second"),
        seconds=(10.0, "that count, of each run"),
        warm=(4.0, "seconds before those"),
        rounds=(5, "runs of each query and side"),
        warm_up=(1, "runs before those, which do not count"),
        partitions=(2, "of each shuffle"),
        executors=(0, "processes of each side; 0: its driver runs the tasks"),
        workers=(1, "more than 1: a further side, whose shuffles are relayed by so many"),
    )
    return parser.parse_args(arguments)


def side_conf(options: argparse.Namespace, scratch: Path) -> dict[str, str]:
    """Settings of Spark with a slot for each task of a query: all of them run at once."""
    slots = job.SOURCES + options.partitions + 2  # two are for the job's own look at the answers
    master = f"local[{slots}]"
    if options.executors:
        master = f"local-cluster[{options.executors},{-(-slots // options.executors)},1024]"
    conf = local_conf(scratch, partitions=options.partitions) | job.SETTINGS
    return conf | {
        "spark.master": master,
        "spark.executor.memory": "1g",
        "spark.sql.leafNodeDefaultParallelism": "1",
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything; the report. Raises SystemExit if the sides' rows differ."""
    names = ("rate", "seconds", "warm", "rounds", "warm_up", "partitions", "executors", "workers")
    report = program.heading("real_time", {name: getattr(options, name) for name in names})
    with ExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="real-time-", dir=options.scratch)))
        sides = _sides(options, scratch, running)
        runs: dict[str, dict[str, list[Points]]] = {q: {name: [] for name in sides} for q in options.queries}
        for number in range(1 - options.warm_up, options.rounds + 1):
            for query in options.queries:
                answers = {}
                for name in list(sides)[:: -1 if number % 2 else 1]:
                    checkpoint = str(scratch / f"{query}-{name}-{number}")
                    answers[name] = _run(sides[name], query, checkpoint, options)
                if other := [name for name in answers if answers[name].rows != answers[OWN].rows]:
                    raise SystemExit(f"{query}, round {number}: {other[0]} gave other rows than {OWN}")
                for name, given in answers.items():
                    points = {point: float(np.percentile(given.latencies_us, q)) for point, q in POINTS.items()}
                    say(f"{query} {number} {name}: " + ", ".join(f"{p} {v:.0f}" for p, v in points.items()))
                    if number > 0:
                        runs[query][name].append(points)
    return report | {"queries": {query: _report(own) for query, own in runs.items()}}


def _sides(options: argparse.Namespace, scratch: Path, running: ExitStack) -> dict[str, SparkDriver]:
    """The drivers, which end with ``running``."""
    base = side_conf(options, scratch)
    servers = {FLIGHT: running.enter_context(ServerProcess(scratch / "data", scratch / "server.log")).control}
    if options.workers > 1:
        root = scratch / "cluster"
        root.mkdir()
        servers[WORKERS] = running.enter_context(ClusterProcesses(root, options.workers)).master.control
    confs = {OWN: base} | {
        name: base | spark_conf(control, fallback="never", real_time=True) for name, control in servers.items()
    }
    return {name: running.enter_context(SparkDriver(conf, scratch / f"{name}.log")) for name, conf in confs.items()}


def _run(driver: SparkDriver, query: str, checkpoint: str, options: argparse.Namespace) -> job.Answers:
    answers: job.Answers = driver.call(
        job.run, query=query, rate=options.rate, seconds=options.seconds, warm_s=options.warm, checkpoint=checkpoint
    )
    return answers


def _report(sides: dict[str, list[Points]]) -> dict[str, Any]:
    """Medians over the rounds; ``ratio`` is Flight Shuffle's over Spark's of the same round, below 1 is faster;
    ``workers_ratio`` that of several workers over one."""
    report: dict[str, Any] = {
        name: {point: round(statistics.median(run[point] for run in runs)) for point in POINTS}
        | {"rounds": [{point: round(value) for point, value in run.items()} for run in runs]}
        for name, runs in sides.items()
    }
    report["ratio"] = _ratios(sides[OWN], sides[FLIGHT])
    if WORKERS in sides:
        report["workers_ratio"] = _ratios(sides[FLIGHT], sides[WORKERS])
    return report


def _ratios(before: list[Points], after: list[Points]) -> Points:
    pairs = list(zip(before, after, strict=True))
    return {point: round(statistics.median(b[point] / a[point] for a, b in pairs), 3) for point in POINTS}


if __name__ == "__main__":
    program.run(main)
