"""Round trips of one message, and the time one way at a given load."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from shuffle_transport.bench.arrivals import POINTS, quantiles
from shuffle_transport.bench.contender import CREDIT, RAW, RAW_POLLING, TCP, Contender, contenders
from shuffle_transport.bench.job import Job
from shuffle_transport.bench.measure import alternate, ratio_of_pairs
from shuffle_transport.bench.plan import KIB, Plan
from shuffle_transport.progress import say

LOAD_MESSAGE = 256 * KIB  # most that is sent at once to catch up


def latency(plan: Plan) -> list[dict[str, Any]]:
    """Ping-pong: the next message leaves when the one before is back. `ratio` is of the p50, against raw Flight's."""
    job = Job("echo", plan.trip_bytes, plan.trip_bytes, plan.trips)
    with contenders(RAW, CREDIT, RAW_POLLING, TCP) as opened:
        rounds = _in_turn(opened, "ping", job, plan.rounds)
    sides = {
        name: _medians([quantiles(trips) for trips in own])
        | {"ratio": ratio_of_pairs(_middles(own), _middles(rounds[RAW]))}
        for name, own in rounds.items()
    }
    say(f"round trip: {_summary(sides)}")
    return [{"bytes": plan.trip_bytes, "trips_per_round": plan.trips, "sides": sides}]


def load(plan: Plan) -> list[dict[str, Any]]:
    """Blocks on a schedule, in microseconds from when a block was due to be sent until it was there."""
    with contenders(RAW, CREDIT) as opened:
        return [_rate(plan, opened, rate) for rate in plan.rates]


def _rate(plan: Plan, opened: Mapping[str, Contender], rate: int) -> dict[str, Any]:
    blocks = LOAD_MESSAGE // plan.rate_block
    job = Job("arrivals", LOAD_MESSAGE, plan.rate_block, max(1, round(rate * plan.rate_s / blocks)), rate=rate)
    rounds = _in_turn(opened, "offer", job, plan.rounds)
    sides = {
        name: _medians(own)
        | {"messages": round(statistics.median(run["messages"] for run in own))}
        | {"p99_rounds": [run["p99"] for run in own]}
        for name, own in rounds.items()
    }
    say(f"{rate} blocks/s: {_summary(sides)}")
    return {"blocks_s": rate, "block_bytes": plan.rate_block, "blocks_per_round": job.blocks, "sides": sides}


def _in_turn(opened: Mapping[str, Contender], verb: str, job: Job, rounds: int) -> dict[str, list[Any]]:
    """What that work, which measures itself, has returned each time."""
    runs = alternate({name: partial(side.run, verb, job) for name, side in opened.items()}, rounds)
    return {name: [run.value for run in own] for name, own in runs.items()}


def _middles(rounds: list[np.ndarray]) -> list[float]:
    return [float(np.median(trips)) for trips in rounds]


def _summary(sides: dict[str, dict[str, Any]]) -> str:
    return ", ".join(f"{name} p50 {side['p50']:.0f} p99 {side['p99']:.0f} us" for name, side in sides.items())


def _medians(rounds: list[Any]) -> dict[str, Any]:
    """Of each point the median over the rounds."""
    return {point: round(statistics.median(run[point] for run in rounds), 1) for point in POINTS}
