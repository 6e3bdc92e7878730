"""Throughput by the number of channels that share one connection, put by a thread each."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from shuffle_transport.bench.ends import CREDIT, RAW, TCP, Ends, Mover
from shuffle_transport.bench.job import Job
from shuffle_transport.bench.measure import alternate, throughput
from shuffle_transport.bench.plan import KIB, Plan
from shuffle_transport.bench.progress import say

BLOCK = 64 * KIB


def channels(plan: Plan) -> list[dict[str, Any]]:
    """The volume is split among the channels. Raw TCP has a connection per channel."""
    with Ends() as ends:
        return [_point(plan, ends, count) for count in plan.channels]


def _point(plan: Plan, ends: Ends, count: int) -> dict[str, Any]:
    messages = max(1, plan.volume // plan.channel_message // count)
    jobs = [Job("sink", plan.channel_message, BLOCK, messages, channel) for channel in range(count)]
    movers: dict[str, Mover] = {RAW: ends.raw, CREDIT: ends.credit, TCP: ends.tcp}
    works: dict[str, Callable[[], None]] = {name: partial(_at_once, mover, jobs) for name, mover in movers.items()}
    runs = alternate(works, plan.rounds, ends.client_pid, ends.peer_pid)
    result = throughput(runs, sum(job.volume for job in jobs), sum(job.blocks for job in jobs), RAW)
    say(f"{count} channels: " + ", ".join(f"{n} {s['gib_s']:.2f}" for n, s in result.items()) + " GiB/s")
    return {
        "channels": count,
        "block_bytes": BLOCK,
        "message_bytes": plan.channel_message,
        "bytes_per_run": sum(job.volume for job in jobs),
        "sides": result,
    }


def _at_once(mover: Mover, jobs: list[Job]) -> None:
    with ThreadPoolExecutor(len(jobs), "bench-channel") as pool:
        list(pool.map(mover.put, jobs))
