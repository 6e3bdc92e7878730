"""Throughput of one put by codec, on data that shrinks and on noise, in bytes before compression."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, get_args

from shuffle_transport.bench.contender import CREDIT, RAW, Contender, contenders
from shuffle_transport.bench.job import Data, Job
from shuffle_transport.bench.measure import alternate, throughput
from shuffle_transport.bench.plan import KIB, Plan
from shuffle_transport.progress import say

CODECS = ("none", "lz4", "zstd")
BLOCK = 64 * KIB
RAW_IPC = "raw_flight_ipc"
"""Raw Flight that compresses with the same codec, whole columns, as Arrow IPC offers it."""
PACKED = "credit_packed"
"""A credit stream whose caller compresses every block; a channel itself compresses what has to wait for credit."""


def codecs(plan: Plan) -> list[dict[str, Any]]:
    """The base is raw Flight without compression. The receiver decompresses."""
    with contenders(RAW, CREDIT) as sides:
        return [_point(plan, sides, codec, data) for data in get_args(Data) for codec in CODECS]


def _point(plan: Plan, sides: Mapping[str, Contender], codec: str, data: Data) -> dict[str, Any]:
    volume = plan.volume // 2
    plain = Job("sink", plan.message, BLOCK, max(1, volume // plan.message), data=data)
    packed = Job("sink", plan.message, BLOCK, plain.count, codec=codec, data=data, check=True)
    raw, credit = sides[RAW], sides[CREDIT]
    works = {RAW: partial(raw.run, "put", plain), CREDIT: partial(credit.run, "put", packed)}
    if codec != "none":
        works[PACKED] = partial(credit.run, "put_packed", packed)
        works[RAW_IPC] = partial(raw.run, "put_ipc", packed)
    runs = alternate(works, plan.rounds)
    sent = {name: runs[name][-1].value for name in (CREDIT, PACKED) if name in runs}
    result = throughput(runs, plain.volume, plain.blocks, RAW)
    say(f"{codec} on {data}: " + ", ".join(f"{name} {side['gib_s']:.2f}" for name, side in result.items()) + " GiB/s")
    return {
        "codec": codec,
        "data": data,
        "sent_part": sent,
        "block_bytes": BLOCK,
        "message_bytes": plan.message,
        "bytes_per_run": plain.volume,
        "sides": result,
    }
