"""Many channels on one connection, one consumer stands still: what the others lose, and what it costs in memory."""

from __future__ import annotations

import statistics
from typing import Any

from shuffle_transport.bench.contender import CREDIT, RAW
from shuffle_transport.bench.ends import Ends
from shuffle_transport.bench.job import Job
from shuffle_transport.bench.machine import GIB
from shuffle_transport.bench.measure import order, ratio_of_pairs
from shuffle_transport.bench.plan import KIB, Plan
from shuffle_transport.bench.streams import Observed, Streamer, observe
from shuffle_transport.progress import say

BLOCK = 64 * KIB
RUNNING, STOPPED = "all_running", "one_stopped"


def isolation(plan: Plan) -> list[dict[str, Any]]:
    """Of each contender in turn: all consumers run, one stands still, and so on, in pairs."""
    return [_side(plan, name) for name in (CREDIT, RAW)]


def _side(plan: Plan, name: str) -> dict[str, Any]:
    with Ends(plan.isolated_budget) as ends:
        side: Streamer = ends.credit if name == CREDIT else ends.raw
        _streams(plan, ends, side, RUNNING, plan.warm_s)  # warm-up
        seen: dict[str, list[Observed]] = {RUNNING: [], STOPPED: []}
        for number in range(plan.rounds):
            for which in order(seen, number):
                seen[which].append(_streams(plan, ends, side, which, plan.isolated_s))
        pool = ends.control.ask("pool")
    all_but_one = (plan.isolated - 1) / plan.isolated
    due = [sum(run.rates.values()) * all_but_one for run in seen[RUNNING]]
    kept = [sum(rate for channel, rate in run.rates.items() if channel) for run in seen[STOPPED]]
    ratio = ratio_of_pairs(kept, due)
    say(f"{plan.isolated} channels, {name}: with one stopped the others keep {ratio['median']:.2f} of their throughput")
    return {
        "side": name,
        "channels": plan.isolated,
        "kept": ratio,
        "all_running_gib_s": round(statistics.median(sum(run.rates.values()) for run in seen[RUNNING]) / GIB, 3),
        "others_gib_s": round(statistics.median(kept) / GIB, 3),
        "stopped_bytes_s": [round(run.rates[0]) for run in seen[STOPPED]],
        "slowest_of_the_others": [round(_slowest(run), 3) for run in seen[STOPPED]],
        "growth_bytes": {which: _growth(runs) for which, runs in seen.items()},
        "pool": {"budget": pool["budget"], "peak": pool["peak"]},
    }


def _streams(plan: Plan, ends: Ends, side: Streamer, which: str, seconds: float) -> Observed:
    jobs = [
        Job("stall" if which == STOPPED and channel == 0 else "sink", plan.channel_message, BLOCK, channel=channel)
        for channel in range(plan.isolated)
    ]
    return observe(ends, side, jobs, plan.warm_s, seconds)


def _slowest(run: Observed) -> float:
    """The slowest of the channels that run, over their mean."""
    rates = [rate for channel, rate in run.rates.items() if channel]
    return min(rates) / max(statistics.mean(rates), 1.0)


def _growth(runs: list[Observed]) -> dict[str, int]:
    return {"client": max(run.client_growth for run in runs), "peer": max(run.peer_growth for run in runs)}
