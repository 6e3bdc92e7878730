"""Runs the cases and puts the report together; docs/benchmarks/README.md explains its fields."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
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
from shuffle_transport.bench.progress import say
from shuffle_transport.bench.targets import targets

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


def measure(plan: Plan, names: Iterable[str]) -> dict[str, Any]:
    """Everything that the JSON holds."""
    facts = machine.facts()
    started = time.monotonic()
    limit = limits(plan)
    cases = {}
    for name in names:
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
