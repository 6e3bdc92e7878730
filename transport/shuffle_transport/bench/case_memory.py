"""Memory of both processes while consumers are slow and producers are not, against the budget of the peer's pool."""

from __future__ import annotations

from typing import Any

from shuffle_transport.bench.contender import CREDIT, RAW
from shuffle_transport.bench.ends import Ends
from shuffle_transport.bench.job import Job
from shuffle_transport.bench.plan import KIB, Plan
from shuffle_transport.bench.streams import observe
from shuffle_transport.progress import say

BLOCK = 64 * KIB


def memory(plan: Plan) -> list[dict[str, Any]]:
    """A fresh peer for each contender and budget. Raw Flight knows no budget; it is there to compare."""
    return [_point(plan, name, budget) for budget in plan.budgets for name in (CREDIT, RAW)]


def _point(plan: Plan, name: str, budget: int) -> dict[str, Any]:
    jobs = [Job("slow", plan.channel_message, BLOCK, channel=channel) for channel in range(plan.slow_channels)]
    with Ends(budget) as ends:
        side = ends.credit if name == CREDIT else ends.raw
        side.put(Job("sink", plan.channel_message, BLOCK, 4))  # the ring exists, code is loaded
        seen = observe(ends, side, jobs, plan.warm_s, plan.slow_s)
        pool = ends.control.ask("pool")
    say(f"slow consumers, {name}, budget {budget >> 20} MiB: the peer grew by {seen.peer_growth >> 20} MiB")
    return {
        "side": name,
        "channels": plan.slow_channels,
        "budget_bytes": budget,
        "growth_bytes": {"client": seen.client_growth, "peer": seen.peer_growth},
        "pool_peak_bytes": pool["peak"],
    }
