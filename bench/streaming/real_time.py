"""Latency in Spark's real-time mode: ``python -m bench.streaming.real_time --json FILE``.

The same queries through Spark's own shuffle manager for that mode and through Flight Shuffle's, which relays by a
worker. Each side is a driver process that lives through all rounds, and only one of them works at a time: A B A B ...
Both must give the same rows. The JSON goes to standard output, progress to standard error.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from bench.harness import machine
from bench.harness.ending import unwind_when_told_to_end
from bench.harness.server import ServerProcess
from bench.harness.spark import local_conf
from bench.harness.spark_driver import SparkDriver
from bench.streaming import real_time_job as job
from shuffle_plugins.spark import spark_conf
from shuffle_transport.bench.progress import say

OWN, FLIGHT = "spark", "flight"
POINTS = {"p50_us": 50, "p90_us": 90, "p99_us": 99}


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    report = measure(options)
    text = json.dumps(report, indent=2)
    print(text)
    if options.json:
        Path(options.json).write_text(text + "\n")
    return 0


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.streaming.real_time", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--queries", nargs="+", choices=sorted(job.QUERIES), default=sorted(job.QUERIES))
    parser.add_argument("--rate", type=int, default=500, help="rows a second (default: 500)")
    parser.add_argument("--seconds", type=float, default=10.0, help="that count, of each run (default: 10)")
    parser.add_argument("--warm", type=float, default=4.0, help="seconds before those (default: 4)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each query and side (default: 5)")
    parser.add_argument("--json", metavar="FILE", help="write the JSON to a file too")
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything; the report. Raises SystemExit if the two sides' rows differ."""
    load = machine.load()
    runs: dict[str, dict[str, list[dict[str, float]]]] = {q: {OWN: [], FLIGHT: []} for q in options.queries}
    with ExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="real-time-")))
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
    return {
        "benchmark": "real_time",
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine.facts() | {"load_before": round(load, 2)},
        "parameters": {name: getattr(options, name) for name in ("rate", "seconds", "warm", "rounds")},
        "queries": {query: _report(own) for query, own in runs.items()},
    }


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
    unwind_when_told_to_end()
    raise SystemExit(main())
