"""The report: which points there are, medians over rounds, ratios, table."""

from __future__ import annotations

from typing import Any

import pytest

from bench.streaming import cases
from bench.streaming.__main__ import medians, summary, table
from bench.streaming.plan import GUARANTEES, IDENTITY


def side(records_s: float, p99: float) -> dict[str, Any]:
    latency = {"p50": p99 / 2, "p99": p99, "max": 2 * p99}
    return {"records_s": records_s, "latency_ms": latency, "checkpoint_ms": {"count": 1, "median": p99, "max": p99}}


def report() -> dict[str, Any]:
    full, loaded = cases.points(IDENTITY, [1], ["exactly_once"], [50_000.0], quick=True)
    machine = {"cpu": "a processor", "cores": 2, "load_before": 0.1}
    sides = {"flight": [side(30, 2.0), side(10, 4.0), side(20, 3.0)], "flink": [side(4, 6.0)]}
    return {"date": "today", "machine": machine, "points": [summary(full, sides), summary(loaded, sides)]}


@pytest.mark.parametrize("quick", [True, False])
def test_every_benchmark_has_points_of_different_names(quick: bool) -> None:
    names = [
        point.name for name in cases.NAMES for point in cases.points(name, [1, 2], GUARANTEES, [1e4, 5e4], quick=quick)
    ]
    assert len(names) == len(set(names))
    assert len([name for name in names if name.startswith(IDENTITY)]) == 2 * len(GUARANTEES) + 2


def test_medians_are_over_rounds_and_ratios_of_medians() -> None:
    full, loaded = report()["points"]
    assert full["sides"]["flight"]["records_s"] == 20
    assert full["times_flink"] == {"records_s": 5.0, "p50_ms": 0.5, "p99_ms": 0.5}
    assert loaded["rate"] == 50_000.0
    assert medians([side(1, 2.0)]) == {"records_s": 1, "p50_ms": 1.0, "p99_ms": 2.0, "checkpoint_ms": 2.0}


def test_table_has_a_row_for_each_side_of_each_point() -> None:
    rows = table(report()).splitlines()
    assert len(rows) == 2 + 4
    assert rows[2].endswith("| 5.00 |")
    assert rows[4].endswith("| 1.50 | 3.00 | 3.00 | p50 0.50, p99 0.50 |")
