"""Round trips of one message, and the time one way at a given load."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from shuffle_transport.bench.arrivals import POINTS, quantiles
from shuffle_transport.bench.ends import CREDIT, RAW, TCP, Ends
from shuffle_transport.bench.job import Job
from shuffle_transport.bench.measure import order, ratio_of_pairs
from shuffle_transport.bench.plan import KIB, Plan
from shuffle_transport.bench.progress import say

LOAD_MESSAGE = 256 * KIB  # most that is sent at once to catch up


def latency(plan: Plan) -> list[dict[str, Any]]:
    """Ping-pong: the next message leaves when the one before is back. `ratio` is of the p50, against raw Flight's."""
    job = Job("echo", plan.trip_bytes, plan.trip_bytes, plan.trips)
    with Ends() as ends:
        works: dict[str, Callable[[Job], np.ndarray]] = {
            RAW: ends.raw.ping,
            CREDIT: ends.credit.ping,
            TCP: ends.tcp.ping,
        }
        rounds = _in_turn({name: partial(work, job) for name, work in works.items()}, plan.rounds)
    sides = {
        name: _medians([quantiles(trips) for trips in own])
        | {"ratio": ratio_of_pairs(_middles(own), _middles(rounds[RAW]))}
        for name, own in rounds.items()
    }
    say(f"round trip: {_summary(sides)}")
    return [{"bytes": plan.trip_bytes, "trips_per_round": plan.trips, "sides": sides}]


def load(plan: Plan) -> list[dict[str, Any]]:
    """Blocks on a schedule, in microseconds from when a block was due to be sent until it was there."""
    with Ends() as ends:
        return [_rate(plan, ends, rate) for rate in plan.rates]


def _rate(plan: Plan, ends: Ends, rate: int) -> dict[str, Any]:
    blocks = LOAD_MESSAGE // plan.rate_block
    job = Job("arrivals", LOAD_MESSAGE, plan.rate_block, max(1, round(rate * plan.rate_s / blocks)))
    works = {RAW: partial(ends.raw.offer, job, rate), CREDIT: partial(ends.credit.offer, job, rate)}
    rounds = _in_turn(works, plan.rounds)
    sides = {
        name: _medians(own)
        | {"messages": round(statistics.median(run["messages"] for run in own))}
        | {"p99_rounds": [run["p99"] for run in own]}
        for name, own in rounds.items()
    }
    say(f"{rate} blocks/s: {_summary(sides)}")
    return {"blocks_s": rate, "block_bytes": plan.rate_block, "blocks_per_round": job.blocks, "sides": sides}


def _in_turn(works: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[Any]]:
    """As `measure.alternate`, for work that measures itself."""
    for work in works.values():
        work()
    results: dict[str, list[Any]] = {name: [] for name in works}
    for number in range(rounds):
        for name in order(works, number):
            results[name].append(works[name]())
    return results


def _middles(rounds: list[np.ndarray]) -> list[float]:
    return [float(np.median(trips)) for trips in rounds]


def _summary(sides: dict[str, dict[str, Any]]) -> str:
    return ", ".join(f"{name} p50 {side['p50']:.0f} p99 {side['p99']:.0f} us" for name, side in sides.items())


def _medians(rounds: list[Any]) -> dict[str, Any]:
    """Of each point the median over the rounds."""
    return {point: round(statistics.median(run[point] for run in rounds), 1) for point in POINTS}
