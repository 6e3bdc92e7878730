"""Latency in Spark's real-time mode: ``python -m bench.streaming.real_time --json FILE``.

The same queries through Spark's own shuffle manager for that mode and through Flight Shuffle's, which relays by a
worker. Each side is a driver process that lives through all rounds, and only one of them works at a time: A B A B ...
Both must give the same rows. The JSON goes to standard output, progress to standard error.
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
from bench.harness.server import ServerProcess
from bench.harness.spark import local_conf
from bench.harness.spark_driver import SparkDriver
from bench.streaming import real_time_job as job
from shuffle_plugins.spark import spark_conf
from shuffle_transport.progress import say

OWN, FLIGHT = "spark", "flight"
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
    )
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything; the report. Raises SystemExit if the two sides' rows differ."""
    names = ("rate", "seconds", "warm", "rounds")
    report = program.heading("real_time", {name: getattr(options, name) for name in names})
    runs: dict[str, dict[str, list[dict[str, float]]]] = {q: {OWN: [], FLIGHT: []} for q in options.queries}
    with ExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="real-time-", dir=options.scratch)))
        server = running.enter_context(ServerProcess(scratch / "data", scratch / "server.log"))
        base = local_conf(scratch, partitions=job.PARTITIONS) | job.SETTINGS
        flight = base | spark_conf(server.control, fallback="never", real_time=True)
        sides = {
            name: running.enter_context(SparkDriver(conf, scratch / f"{name}.log"))
            for name, conf in ((OWN, base), (FLIGHT, flight))
        }
        for number in range(options.rounds + 1):  # the first one warms up
            for query in options.queries:
                answers = {}
                for name in list(sides)[:: -1 if number % 2 else 1]:
                    checkpoint = str(scratch / f"{query}-{name}-{number}")
                    answers[name] = _run(sides[name], query, checkpoint, options)
                if answers[OWN].rows != answers[FLIGHT].rows:
                    raise SystemExit(f"{query}, round {number}: the two sides gave other rows")
                for name, given in answers.items():
                    points = {point: float(np.percentile(given.latencies_us, q)) for point, q in POINTS.items()}
                    say(f"{query} {number} {name}: " + ", ".join(f"{p} {v:.0f}" for p, v in points.items()))
                    if number:
                        runs[query][name].append(points)
    return report | {"queries": {query: _report(own) for query, own in runs.items()}}


def _run(driver: SparkDriver, query: str, checkpoint: str, options: argparse.Namespace) -> job.Answers:
    answers: job.Answers = driver.call(
        job.run, query=query, rate=options.rate, seconds=options.seconds, warm_s=options.warm, checkpoint=checkpoint
    )
    return answers


def _report(sides: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians over the rounds; ``ratio`` is Flight Shuffle's over Spark's of the same round, below 1 is faster."""
    pairs = list(zip(sides[OWN], sides[FLIGHT], strict=True))
    return {
        name: {point: round(statistics.median(run[point] for run in runs)) for point in POINTS}
        | {"rounds": [{point: round(value) for point, value in run.items()} for run in runs]}
        for name, runs in sides.items()
    } | {"ratio": {point: round(statistics.median(b[point] / a[point] for a, b in pairs), 3) for point in POINTS}}


if __name__ == "__main__":
    program.run(main)
