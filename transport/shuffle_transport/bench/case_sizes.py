"""Throughput of one stream by block size: put (client to peer), get (peer to client), exchange (both at once)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from shuffle_transport.bench.contender import CREDIT, RAW, RAW_POLLING, REMOTE, TCP, Contender, contenders
from shuffle_transport.bench.job import Job, Work
from shuffle_transport.bench.measure import alternate, throughput
from shuffle_transport.bench.plan import Plan
from shuffle_transport.progress import say

CHECKED = "credit_checked"
"""The credit stream whose receiver checks every block's checksum, which raw Flight has none of."""

WORK: dict[str, Work] = {"put": "sink", "get": "source", "exchange": "both"}


def sizes(plan: Plan) -> list[dict[str, Any]]:
    """Blocks below `plan.message` are joined to messages of that size; raw Flight gets the same messages."""
    with contenders(RAW, CREDIT, RAW_POLLING, REMOTE, TCP) as sides:
        return [point(plan, sides, way, block, max(block, plan.message)) for block in plan.sizes for way in WORK]


def messages(plan: Plan) -> list[dict[str, Any]]:
    """One block per message: what streaming at low delay costs."""
    with contenders(RAW, CREDIT, RAW_POLLING, REMOTE, TCP) as sides:
        return [point(plan, sides, way, block, block) for block in plan.single_sizes for way in ("put", "get")]


def point(plan: Plan, sides: Mapping[str, Contender], way: str, block: int, message: int) -> dict[str, Any]:
    """All contenders in turn at one size and in one direction."""
    volume = min(plan.volume, plan.most_blocks * block, plan.most_messages * message)
    job = Job(WORK[way], message, block, max(1, volume // message))
    works = {name: partial(side.run, way, job) for name, side in sides.items() if (name, way) != (REMOTE, "exchange")}
    if way == "put":
        works[CHECKED] = partial(sides[CREDIT].run, "put_checked", job)
    runs = alternate(works, plan.rounds)
    both = 2 if way == "exchange" else 1
    result = throughput(runs, job.volume * both, job.blocks * both, RAW)
    say(f"{way} {block} B in {message} B: " + ", ".join(f"{n} {s['gib_s']:.2f}" for n, s in result.items()) + " GiB/s")
    return {
        "way": way,
        "block_bytes": block,
        "message_bytes": message,
        "bytes_per_run": job.volume * both,
        "sides": result,
    }
