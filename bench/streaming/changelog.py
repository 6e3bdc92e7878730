"""``python -m bench.streaming.changelog``: cost of the in-flight log on disk, and its effect on checkpoints.

One source and one operator, a checkpoint every 0.5 s whose parts are stored in files.

cost     word count, as many records as go, without the log and with it; both store all of their state each time
state    identity at a fixed rate, by size of the operator's state: stored whole each time, or every tenth with the log

Sides take turns: A B B A ... The JSON goes to standard output, progress to standard error.
docs/benchmarks/README.md explains the fields.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import program
from bench.streaming.plan import IDENTITY, WORDCOUNT, Case
from bench.streaming.run import Outcome, run
from shuffle_transport.bench.measure import alternate
from shuffle_transport.progress import say

WHOLE, LOG = "whole", "log"
EVERY = 10
"""Checkpoints to a materialization, with the log."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Sizes of the work; `states` in MiB."""

    rounds: int = 3
    records: int = 6_000_000
    rate: float = 100_000.0
    seconds: float = 15.0
    interval: float = 0.5
    states: tuple[int, ...] = (1, 64, 256)


QUICK = Parameters(rounds=1, records=60_000, rate=20_000.0, seconds=2.0, interval=0.1, states=(1, 8))


def main() -> None:
    """Run and print."""
    parser = program.parser("streaming.changelog", __doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="(default: all)")
    parser.add_argument("--rounds", type=int, help=f"runs of each side (default: {Parameters().rounds})")
    parser.add_argument("--quick", action="store_true", help="small numbers: whether it works, not how fast")
    options = parser.parse_args()
    parameters = QUICK if options.quick else Parameters()
    if options.rounds:
        parameters = replace(parameters, rounds=options.rounds)
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        report = program.measure("streaming_changelog", parameters, Path(scratch), options.only, PARTS)
    program.publish(report, options.json)


def cost(parameters: Parameters, scratch: Path) -> dict[str, Any]:
    """Throughput without the log, and with it."""
    base = Case(
        WORDCOUNT,
        guarantee="exactly_once",
        records=parameters.records,
        block_records=4096,
        checkpoint_s=parameters.interval,
    )
    without = replace(base, stored=str(scratch), state_bytes=1 << 20)
    sides = {"without": without, "with": replace(without, options={"log_dir": str(scratch / "log")})}
    found = in_turn(sides, parameters.rounds)
    medians = {side: statistics.median(each.records_s for each in rounds) for side, rounds in found.items()}
    return {
        "records_s": {side: round(median) for side, median in medians.items()},
        "ratio": round(medians["with"] / medians["without"], 4),
        "cpu_s": {side: round(statistics.median(cpu(each) for each in rounds), 2) for side, rounds in found.items()},
        "rounds": {side: [each.as_json() for each in rounds] for side, rounds in found.items()},
    }


def state(parameters: Parameters, scratch: Path) -> dict[str, Any]:
    """How long a checkpoint takes, by the size of the state."""
    return {f"{size} MiB": state_of(size << 20, parameters, scratch) for size in parameters.states}


def state_of(size: int, parameters: Parameters, scratch: Path) -> dict[str, Any]:
    """Both sides with one size."""
    whole = Case(
        IDENTITY,
        guarantee="exactly_once",
        records=int(parameters.rate * parameters.seconds),
        rate=parameters.rate,
        checkpoint_s=parameters.interval,
        stored=str(scratch),
        state_bytes=size,
    )
    log = replace(whole, options={"log_dir": str(scratch / "log")}, materialize_every=EVERY)
    found = in_turn({WHOLE: whole, LOG: log}, parameters.rounds)
    return {side: checkpoints(rounds) for side, rounds in found.items()}


def checkpoints(rounds: list[Outcome]) -> dict[str, Any]:
    """Over all rounds of a side."""
    took = sorted(ms for each in rounds for ms in each.stored_ms)
    return {
        "count": len(took),
        "p50_ms": round(took[len(took) // 2], 2),
        "p99_ms": round(took[int(0.99 * (len(took) - 1))], 2),
        "stored_bytes": sum(operator.stored_bytes for each in rounds for operator in each.operators),
        "records_s": round(statistics.median(each.records_s for each in rounds)),
    }


def in_turn(sides: dict[str, Case], rounds: int) -> dict[str, list[Outcome]]:
    """Each side once a round, in turn; the order changes from round to round."""

    def timed(side: str) -> Outcome:
        os.sync()  # or the disk would still write what the other side has left
        outcome = run(sides[side])
        last = f"{outcome.stored_ms[-1]:.1f} ms at most" if outcome.stored_ms else "none"
        say(f"{side}: {outcome.records_s:,.0f} records/s, checkpoints {last}")
        return outcome

    works: dict[str, Callable[[], Outcome]] = {side: partial(timed, side) for side in sides}
    return alternate(works, rounds, warm_up=0)


def cpu(outcome: Outcome) -> float:
    """Processor seconds of all tasks."""
    return sum(each.cpu_s for each in outcome.tasks)


PARTS = {"cost": cost, "state": state}

if __name__ == "__main__":
    program.run(main)
