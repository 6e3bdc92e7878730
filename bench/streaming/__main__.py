"""``python -m bench.streaming identity --flink``: throughput at saturation, and latency by offered load.

Source -> shuffle -> operator with sink; every source and every operator is a process. Sides take turns: A B A B ...
The JSON goes to standard output, progress and a table to standard error.
docs/benchmarks/README.md explains the fields.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.harness import machine
from bench.harness.ending import unwind_when_told_to_end
from bench.harness.relay_process import RelayProcess
from bench.streaming import cases, flink, table
from bench.streaming.cases import Point
from bench.streaming.plan import GUARANTEES
from bench.streaming.run import run

FLIGHT, FLINK, RELAYED = "flight", "flink", "flight_relayed"


def main() -> int:
    """Run, print, draw."""
    options = parse_arguments()
    report = measure(options)
    print(json.dumps(report, indent=2))
    print(table.table(report), file=sys.stderr)
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=2) + "\n")
    if options.plot:
        from bench.streaming.plot import draw  # needs matplotlib

        draw(report, Path(options.plot))
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.streaming", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("benchmarks", nargs="+", choices=cases.NAMES, metavar="BENCHMARK", help=", ".join(cases.NAMES))
    parser.add_argument("--parallelism", type=int, nargs="+", default=[1], metavar="N", help="1 to 4 (default: 1)")
    parser.add_argument(
        "--guarantee",
        nargs="+",
        choices=GUARANTEES,
        default=["at_least_once", "exactly_once"],
        help="(default: at_least_once exactly_once)",
    )
    parser.add_argument(
        "--rate", type=float, nargs="*", default=[50_000.0], metavar="R", help="identity's loads (default: 50000/s)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side that count (default: 3)")
    parser.add_argument("--flink", action="store_true", help="run Flink beside it; Maven fetches its jars")
    parser.add_argument("--relay", action="store_true", help="run it through a worker too, as a side of its own")
    parser.add_argument("--quick", action="store_true", help="small numbers: whether it works, not how fast")
    parser.add_argument("--json", metavar="FILE", help="write the JSON to a file too")
    parser.add_argument("--plot", metavar="FILE", help="draw a PNG (needs matplotlib)")
    return parser.parse_args()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything; the report."""
    if options.flink:
        flink.build()
    with tempfile.TemporaryDirectory() as scratch:
        limits = {} if options.quick else machine.limits(Path(scratch))
    load = machine.load()
    points = [
        point
        for name in options.benchmarks
        for point in cases.points(name, options.parallelism, options.guarantee, options.rate, quick=options.quick)
    ]
    runs: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for number in range(options.rounds):
        for point in points:
            for side, found in run_point(point, with_flink=options.flink, with_relay=options.relay).items():
                runs[point.name][side].append(found)
                say(f"round {number + 1}: {point.name}: {side} {found['records_s']:,} records/s {found['latency_ms']}")
    return {
        "benchmark": "streaming",
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine.facts() | {"load_before": round(load, 2)},
        "limits_gib_s": limits,
        "parameters": {name: getattr(options, name) for name in ("rounds", "rate", "quick")},
        "points": [summary(point, runs[point.name]) for point in points],
    }


def run_point(point: Point, *, with_flink: bool, with_relay: bool = False) -> dict[str, dict[str, Any]]:
    """Each side once."""
    found: dict[str, dict[str, Any]] = {FLIGHT: run(point.flight).as_json()}
    if with_relay:
        with tempfile.TemporaryDirectory() as directory, RelayProcess(Path(directory)) as relay:
            case = replace(point.flight, options={**point.flight.options, "relay": relay.address})
            found[RELAYED] = run(case).as_json()
    if with_flink and point.flink is not None:
        found[FLINK] = flink.run(point.flink).as_json()
    return found


def summary(point: Point, sides: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """A point of the report: medians over the rounds, and how the sides compare."""
    said: dict[str, Any] = {
        "name": point.name,
        "workload": point.flight.workload,
        "parallelism": point.flight.parallelism,
        "guarantee": point.flight.guarantee,
        "rate": point.flight.rate,
        "consume_rate": point.flight.consume_rate,
        "sides": {name: medians(rounds) | {"rounds": rounds} for name, rounds in sides.items()},
    }
    if FLINK in sides:
        said["times_flink"] = {
            name: round(said["sides"][FLIGHT][name] / said["sides"][FLINK][name], 3)
            for name in ("records_s", "p50_ms", "p99_ms")
            if said["sides"][FLINK].get(name) and said["sides"][FLIGHT].get(name) is not None
        }
    return said


def medians(rounds: list[dict[str, Any]]) -> dict[str, float]:
    """Of one side, over its rounds."""
    found: dict[str, float] = {"records_s": statistics.median(each["records_s"] for each in rounds)}
    for name in ("p50", "p99"):
        if all(name in each["latency_ms"] for each in rounds):
            found[f"{name}_ms"] = statistics.median(each["latency_ms"][name] for each in rounds)
    checkpoints = [each["checkpoint_ms"]["median"] for each in rounds if each.get("checkpoint_ms", {}).get("count")]
    if checkpoints:
        found["checkpoint_ms"] = statistics.median(checkpoints)
    return found


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    unwind_when_told_to_end()
    sys.exit(main())
