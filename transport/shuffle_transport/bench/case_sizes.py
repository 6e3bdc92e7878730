"""Throughput of one stream by block size: put (client to peer), get (peer to client), exchange (both at once)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from shuffle_transport.bench.ends import CHECKED, CREDIT, RAW, REMOTE, TCP, Ends, Mover
from shuffle_transport.bench.job import Job, Work
from shuffle_transport.bench.measure import alternate, throughput
from shuffle_transport.bench.plan import Plan
from shuffle_transport.bench.progress import say

WORK: dict[str, Work] = {"put": "sink", "get": "source", "exchange": "both"}


def sizes(plan: Plan) -> list[dict[str, Any]]:
    """Blocks below `plan.message` are joined to messages of that size; raw Flight gets the same messages."""
    with Ends() as ends:
        return [point(plan, ends, way, block, max(block, plan.message)) for block in plan.sizes for way in WORK]


def messages(plan: Plan) -> list[dict[str, Any]]:
    """One block per message: what streaming at low delay costs."""
    with Ends() as ends:
        return [point(plan, ends, way, block, block) for block in plan.single_sizes for way in ("put", "get")]


def point(plan: Plan, ends: Ends, way: str, block: int, message: int) -> dict[str, Any]:
    """All contenders in turn at one size and in one direction."""
    volume = min(plan.volume, plan.most_blocks * block, plan.most_messages * message)
    job = Job(WORK[way], message, block, max(1, volume // message))
    runs = alternate(_contenders(ends, way, job), plan.rounds, ends.client_pid, ends.peer_pid)
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


def _contenders(ends: Ends, way: str, job: Job) -> dict[str, Callable[[], None]]:
    if way == "exchange":
        return {
            RAW: partial(ends.raw.exchange, job),
            CREDIT: partial(ends.credit.exchange, job),
            TCP: partial(ends.tcp.exchange, job),
        }
    movers: dict[str, Mover] = {RAW: ends.raw, CREDIT: ends.credit, REMOTE: ends.remote, TCP: ends.tcp}
    if way == "get":
        return {name: partial(mover.get, job) for name, mover in movers.items()}
    puts: dict[str, Callable[[], None]] = {name: partial(mover.put, job) for name, mover in movers.items()}
    return puts | {CHECKED: partial(ends.credit.put_checked, job)}
