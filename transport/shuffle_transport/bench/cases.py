"""The cases of the benchmark, and the report that they make; docs/benchmarks/README.md explains its fields.

Throughput by block size, messages, channels and codecs; isolation and memory while consumers stand still or are slow;
round trips, and the time one way at a given load.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, get_args

import numpy as np

from shuffle_transport.bench import machine
from shuffle_transport.bench.arrivals import POINTS, quantiles
from shuffle_transport.bench.contender import (
    CHECKED,
    CREDIT,
    PACKED,
    RAW,
    RAW_IPC,
    RAW_POLLING,
    REMOTE,
    TCP,
    Contender,
    contenders,
)
from shuffle_transport.bench.job import Data, Job, Work
from shuffle_transport.bench.machine import GIB
from shuffle_transport.bench.measure import alternate, order, ratio_of_pairs, throughput
from shuffle_transport.bench.plan import KIB, Plan
from shuffle_transport.bench.streams import Ends, Observed, Streamer, observe
from shuffle_transport.bench.targets import targets
from shuffle_transport.progress import Progress, say

BLOCK = 64 * KIB
WORK: dict[str, Work] = {"put": "sink", "get": "source", "exchange": "both"}
CODECS = ("none", "lz4", "zstd")
RUNNING, STOPPED = "all_running", "one_stopped"
LOAD_MESSAGE = 256 * KIB  # most that is sent at once to catch up


def sizes(plan: Plan) -> list[dict[str, Any]]:
    """One stream, put (client to peer), get (peer to client), exchange (both at once).

    Blocks below `plan.message` are joined to messages of that size; raw Flight gets the same messages.
    """
    with contenders(RAW, CREDIT, RAW_POLLING, REMOTE, TCP) as sides:
        return [_size_point(plan, sides, way, block, max(block, plan.message)) for block in plan.sizes for way in WORK]


def messages(plan: Plan) -> list[dict[str, Any]]:
    """One block per message: what streaming at low delay costs."""
    with contenders(RAW, CREDIT, RAW_POLLING, REMOTE, TCP) as sides:
        return [_size_point(plan, sides, way, block, block) for block in plan.single_sizes for way in ("put", "get")]


def _size_point(plan: Plan, sides: Mapping[str, Contender], way: str, block: int, message: int) -> dict[str, Any]:
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


def channels(plan: Plan) -> list[dict[str, Any]]:
    """Channels on one connection share the volume, put by a thread each. Raw TCP has a connection per channel."""
    with contenders(RAW, CREDIT, RAW_POLLING, TCP) as sides:
        return [_channels_point(plan, sides, count) for count in plan.channels]


def _channels_point(plan: Plan, sides: Mapping[str, Contender], count: int) -> dict[str, Any]:
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


def codecs(plan: Plan) -> list[dict[str, Any]]:
    """One put by codec, on data that shrinks and on noise; the base is raw Flight without compression."""
    with contenders(RAW, CREDIT) as sides:
        return [_codec_point(plan, sides, codec, data) for data in get_args(Data) for codec in CODECS]


def _codec_point(plan: Plan, sides: Mapping[str, Contender], codec: str, data: Data) -> dict[str, Any]:
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


def memory(plan: Plan) -> list[dict[str, Any]]:
    """Slow consumers, against the budget of the peer's pool, a fresh peer each. Raw Flight has none."""
    return [_memory_point(plan, name, budget) for budget in plan.budgets for name in (CREDIT, RAW)]


def _memory_point(plan: Plan, name: str, budget: int) -> dict[str, Any]:
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


def limits(plan: Plan) -> dict[str, float]:
    """Of the machine, GiB/s: copying warm memory, and one loopback TCP stream between two processes."""
    with contenders(TCP) as sides:
        job = Job("sink", plan.message, plan.message, max(1, plan.volume // plan.message))
        runs = alternate({TCP: partial(sides[TCP].run, "put", job)}, plan.rounds)
        tcp: float = throughput(runs, job.volume, job.blocks, TCP)[TCP]["gib_s"]
    return {"memcpy": machine.memcpy_gib_s(), "loopback_tcp": tcp}


CASES: dict[str, Callable[[Plan], list[dict[str, Any]]]] = {
    "sizes": sizes,
    "messages": messages,
    "channels": channels,
    "isolation": isolation,
    "codecs": codecs,
    "latency": latency,
    "load": load,
    "memory": memory,
}


def measure(plan: Plan, names: Sequence[str], *, quiet: bool = False) -> dict[str, Any]:
    """Everything that the JSON holds. `quiet`: without a progress bar."""
    facts = machine.facts()
    started = time.monotonic()
    cases = {}
    with Progress("transport", hidden=quiet) as progress:
        progress.at(0, 1, "limits of this machine")
        limit = limits(plan)
        for number, name in enumerate(names):
            progress.at(number, len(names), name)
            say(f"-- {name}")
            cases[name] = CASES[name](plan)
    return {
        "benchmark": "transport",
        "date": time.strftime("%Y-%m-%d"),
        "machine": facts,
        "limits_gib_s": limit,
        "parameters": asdict(plan),
        "took_s": round(time.monotonic() - started, 1),
        "targets": [target.report() for target in targets(cases)],
        "cases": cases,
    }
