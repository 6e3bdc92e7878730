"""What the machine can do at best, next to what Flight does with it."""

from __future__ import annotations

from functools import partial

from shuffle_transport.bench import machine
from shuffle_transport.bench.contender import TCP, contenders
from shuffle_transport.bench.job import Job
from shuffle_transport.bench.measure import alternate, throughput
from shuffle_transport.bench.plan import Plan


def limits(plan: Plan) -> dict[str, float]:
    """GiB/s: copying warm memory, and one loopback TCP stream between two processes."""
    with contenders(TCP) as sides:
        job = Job("sink", plan.message, plan.message, max(1, plan.volume // plan.message))
        runs = alternate({TCP: partial(sides[TCP].run, "put", job)}, plan.rounds)
        tcp: float = throughput(runs, job.volume, job.blocks, TCP)[TCP]["gib_s"]
    return {"memcpy": machine.memcpy_gib_s(), "loopback_tcp": tcp}
