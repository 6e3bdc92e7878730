"""Throughput by the number of channels that share one connection, put by a thread each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from shuffle_transport.bench.contender import CREDIT, RAW, RAW_POLLING, TCP, Contender, contenders
from shuffle_transport.bench.job import Job
from shuffle_transport.bench.measure import alternate, throughput
from shuffle_transport.bench.plan import KIB, Plan
from shuffle_transport.progress import say

BLOCK = 64 * KIB


def channels(plan: Plan) -> list[dict[str, Any]]:
    """The volume is split among the channels. Raw TCP has a connection per channel."""
    with contenders(RAW, CREDIT, RAW_POLLING, TCP) as sides:
        return [_point(plan, sides, count) for count in plan.channels]


def _point(plan: Plan, sides: Mapping[str, Contender], count: int) -> dict[str, Any]:
    messages = max(1, plan.volume // plan.channel_message // count)
    jobs = [Job("sink", plan.channel_message, BLOCK, messages, channel) for channel in range(count)]
    runs = alternate({name: partial(side.run, "put", *jobs) for name, side in sides.items()}, plan.rounds)
    result = throughput(runs, sum(job.volume for job in jobs), sum(job.blocks for job in jobs), RAW)
    say(f"{count} channels: " + ", ".join(f"{n} {s['gib_s']:.2f}" for n, s in result.items()) + " GiB/s")
    return {
        "channels": count,
        "block_bytes": BLOCK,
        "message_bytes": plan.channel_message,
        "bytes_per_run": sum(job.volume for job in jobs),
        "sides": result,
    }
