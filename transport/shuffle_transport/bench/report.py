"""Runs the cases and puts the report together; docs/benchmarks/README.md explains its fields."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from shuffle_transport.bench import machine
from shuffle_transport.bench.case_channels import channels
from shuffle_transport.bench.case_codecs import codecs
from shuffle_transport.bench.case_isolation import isolation
from shuffle_transport.bench.case_latency import latency, load
from shuffle_transport.bench.case_memory import memory
from shuffle_transport.bench.case_sizes import messages, sizes
from shuffle_transport.bench.limits import limits
from shuffle_transport.bench.plan import Plan
from shuffle_transport.bench.targets import targets
from shuffle_transport.progress import Progress, say

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
