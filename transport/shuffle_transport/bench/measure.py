"""Alternating runs and what they come to: medians, and ratios of pairs from the same round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from shuffle_transport.bench.machine import GIB

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """One timed run: wall time, processor time of both ends, and what the call returned."""

    seconds: float
    client_cpu_s: float
    peer_cpu_s: float
    value: Any = None


def alternate(works: Mapping[str, Callable[[], T]], rounds: int, warm_up: int = 1) -> dict[str, list[T]]:
    """Run each to warm up, so many times, then all in turn, `rounds` times, in the order that `order` says."""
    for _ in range(warm_up):
        for work in works.values():
            work()
    runs: dict[str, list[T]] = {name: [] for name in works}
    for number in range(rounds):
        for name in order(works, number):
            runs[name].append(works[name]())
    return runs


def order(names: Iterable[str], number: int) -> list[str]:
    """Who runs in round `number`, first to last: rows of a Williams design, a Latin square.

    Over as many rounds as there are contenders (twice as many if their number is odd) each is in each place, and behind
    each of the others, equally often; so neither a drift of the machine nor what the one before has left in its caches
    favours one. (E. J. Williams, "Experimental designs balanced for the estimation of residual effects of treatments",
    1949.)
    """
    all_ = list(names)
    n = len(all_)
    zigzag = [(i + 1) // 2 if i % 2 else n - i // 2 for i in range(n)]  # 0, 1, n - 1, 2, n - 2, ...
    row = [all_[(place + number) % n] for place in zigzag]
    return row[::-1] if n % 2 and number % 2 else row


def ratio_of_pairs(mine: Sequence[float], base: Sequence[float], digits: int = 3) -> dict[str, Any]:
    """`mine` over `base` pair by pair, and the median of that."""
    pairs = [a / b for a, b in zip(mine, base, strict=True)]
    return {"median": round(statistics.median(pairs), digits), "pairs": [round(pair, digits) for pair in pairs]}


def throughput(runs: Mapping[str, list[Run]], size: int, blocks: int, base: str) -> dict[str, dict[str, Any]]:
    """What each contender's runs of `size` payload bytes in `blocks` blocks come to.

    `ratio` is its throughput over that of `base`. Processor time is summed over the rounds.
    """
    return {name: _side(own, size, blocks, runs[base]) for name, own in runs.items()}


def _side(runs: list[Run], size: int, blocks: int, base: list[Run]) -> dict[str, Any]:
    median = statistics.median(run.seconds for run in runs)
    gib = size * len(runs) / GIB
    return {
        "gib_s": round(size / median / GIB, 3),
        "blocks_s": round(blocks / median),
        "ratio": ratio_of_pairs([run.seconds for run in base], [run.seconds for run in runs]),
        "cpu_s_per_gib": {
            "client": round(sum(run.client_cpu_s for run in runs) / gib, 3),
            "peer": round(sum(run.peer_cpu_s for run in runs) / gib, 3),
        },
        "seconds": [round(run.seconds, 4) for run in runs],
    }
