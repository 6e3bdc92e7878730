"""``python -m bench.streaming identity --flink``: throughput at saturation, and latency by offered load.

Source -> shuffle -> operator with sink; every source and every operator is a process. Sides take turns: A B A B ...
The JSON goes to standard output, progress and a table to standard error.
docs/benchmarks/README.md explains the fields.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.harness import program
from bench.harness.server import ServerProcess
from bench.streaming import cases, flink
from bench.streaming.cases import Point
from bench.streaming.plan import GUARANTEES
from bench.streaming.run import run
from shuffle_transport.progress import say

FLIGHT, FLINK, RELAYED = "flight", "flink", "flight_relayed"
HEAD = ("benchmark", "side", "records/s", "p50 ms", "p99 ms", "checkpoint ms", "times Flink's")


def main() -> None:
    """Run and print."""
    options = parse_arguments()
    report = measure(options)
    say(table(report))
    program.publish(report, options.json)


def parse_arguments() -> argparse.Namespace:
    parser = program.parser("streaming", __doc__)
    parser.add_argument("benchmarks", nargs="+", choices=cases.NAMES, metavar="BENCHMARK", help=", ".join(cases.NAMES))
    parser.add_argument(
        "--guarantee", nargs="+", choices=GUARANTEES, default=GUARANTEES[1:], help=f"(default: {GUARANTEES[1:]})"
    )
    parser.add_argument("--rate", type=float, nargs="*", default=[50_000.0], help="identity's loads (default: 50000/s)")
    program.add_options(parser, parallelism=([1], "1 to 4"), rounds=(3, "runs of each side that count"))
    parser.add_argument("--flink", action="store_true", help="run Flink beside it; Maven fetches its jars")
    parser.add_argument("--relay", action="store_true", help="run it through a worker too, as a side of its own")
    parser.add_argument("--quick", action="store_true", help="small numbers: whether it works, not how fast")
    return parser.parse_args()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything; the report."""
    if options.flink:
        flink.build()
    report = program.heading("streaming", {name: getattr(options, name) for name in ("rounds", "rate", "quick")})
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
    return report | {"points": [summary(point, runs[point.name]) for point in points]}


def run_point(point: Point, *, with_flink: bool, with_relay: bool = False) -> dict[str, dict[str, Any]]:
    """Each side once."""
    found: dict[str, dict[str, Any]] = {FLIGHT: run(point.flight).as_json()}
    if with_relay:
        with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder, "data"), Path(folder, "log")) as relay:
            case = replace(point.flight, options={**point.flight.options, "relay": relay.data})
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


def table(report: dict[str, Any]) -> str:
    """A row per point and side."""
    rows = []
    for point in report["points"]:
        loaded = bool(point["rate"])
        for side, found in point["sides"].items():
            ratio = point.get("times_flink", {}) if side == FLIGHT else {}
            shown = ("p50_ms", "p99_ms") if loaded else ("records_s",)
            ratios = [f"{name[:3]} " * loaded + f"{ratio[name]:.2f}" for name in shown if name in ratio]
            figures = [found.get(name) for name in ("p50_ms", "p99_ms")] if loaded else [None, None]
            cells = ["" if each is None else f"{each:,.2f}" for each in (*figures, found.get("checkpoint_ms"))]
            rows.append((point["name"], side, f"{found['records_s']:,.0f}", *cells, ", ".join(ratios)))
    return program.table(HEAD, rows)


if __name__ == "__main__":
    program.run(main)
