"""Adaptive execution plans as with sort shuffle; ``python -m tests.spark.plans`` compares all queries of two suites."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bench import tpch
from bench.answers import SUITES
from tests.spark import plans
from tests.spark.decisions import Decided
from tests.spark.plans import AGAIN, FLIGHT, SORT, Query

pytestmark = pytest.mark.spark

SCALE = 0.02


def test_a_query_is_planned_as_with_sort_shuffle_and_writes_less(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    tpch.generate(tables, SCALE)
    given = argparse.Namespace(
        queries="3", memory="1g", partitions=8, advisory="64k", broadcast="100k", codec="lz4", once=True
    )
    queries = plans.run(SUITES["tpch"], tables, given, tmp_path)
    found = plans.report(queries)
    assert found["wrong"] == {}
    assert found["differ"] == {FLIGHT: []}
    assert any("AQEShuffleRead coalesced" in decision for decision in queries[0].sides[SORT].decisions)
    assert found["bytes_ratio"] < 0.8
    assert plans.verdict(found, 0) == 0


def side(decisions: list[str], rows: list[tuple[int]] | None = None, written: int = 10) -> Decided:
    return Decided(rows or [(1,)], decisions, len(decisions), written)


def test_what_differs_is_reported_by_side() -> None:
    joins = ["SortMergeJoin", "AQEShuffleRead coalesced 3"]
    queries = [
        Query("q1", {SORT: side(joins), AGAIN: side(joins), FLIGHT: side(joins, written=4)}),
        Query("q2", {SORT: side(joins), AGAIN: side(joins[:1]), FLIGHT: side(joins[:1])}),
        Query("q3", {SORT: side(joins), AGAIN: side(joins), FLIGHT: side(["BroadcastHashJoin"], written=12)}),
    ]
    found = plans.report(queries)
    assert found["differ"] == {AGAIN: ["q2"], FLIGHT: ["q2", "q3"]}
    assert found["partitions"] == {SORT: 6, AGAIN: 5, FLIGHT: 4}
    assert found["bytes_ratio"] == round(26 / 30, 3)
    assert found["worst_bytes_ratio"] == {"q3": 1.2}
    assert [plans.verdict(found, most) for most in (0, 1)] == [1, 0]


def test_other_answers_are_wrong_whatever_the_plans() -> None:
    found = plans.report([Query("q1", {SORT: side([]), FLIGHT: side([], rows=[(2,)])})])
    assert list(found["wrong"]) == ["q1"]
    assert plans.verdict(found, 100) == 1
