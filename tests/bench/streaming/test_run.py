"""Small cases through processes, and the errors when something is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.streaming import flink
from bench.streaming.__main__ import FLIGHT, RELAYED, run_point
from bench.streaming.cases import Point
from bench.streaming.plan import IDENTITY, WORDCOUNT, Case, OperatorResult, SourceResult
from bench.streaming.run import Outcome, check, run


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "case",
    [
        Case(IDENTITY, records=5_000, rate=5_000.0, checkpoint_s=0.2, timeout_s=800.0),
        Case(
            WORDCOUNT,
            2,
            "exactly_once",
            "unaligned",
            records=20_000,
            block_records=500,
            checkpoint_s=0.2,
            timeout_s=800.0,
        ),
    ],
    ids=["identity at a rate", "word count"],
)
def test_what_is_sent_arrives(case: Case) -> None:
    outcome = run(case)  # checks it
    assert outcome.records_s > 0
    assert (outcome.latency_ms(0.99) is not None) == (case.workload == IDENTITY)
    assert outcome.as_json()["records_s"] == round(outcome.records_s)
    assert all(memory > 0 for each in outcome.sources for memory in each.memory)


@pytest.mark.timeout(300)
def test_relayed_side_goes_through_a_worker() -> None:
    case = Case(IDENTITY, records=5_000, rate=5_000.0, timeout_s=250.0)
    found = run_point(Point("small", case), with_flink=False, with_relay=True)
    assert found.keys() == {FLIGHT, RELAYED}
    assert all(side["records_s"] > 0 for side in found.values())


SENT = SourceResult(100, 4950, 1.0, 1.0, (), 0.0)
GOT = OperatorResult(100, 4950, 0, 60, 0.5, 1.0, (3.0, 1.0, 2.0), (7.0,))


def outcome(got: OperatorResult, workload: str = IDENTITY) -> Outcome:
    return Outcome(Case(workload, records=100), (SENT,), (got,))


def test_rate_is_that_of_the_warm_part_and_quantiles_those_of_the_sample() -> None:
    found = outcome(GOT)
    check(found)
    assert found.records_s == 120
    assert [found.latency_ms(quantile) for quantile in (0.0, 0.5, 1.0)] == [1.0, 2.0, 3.0]
    assert found.as_json()["checkpoint_ms"] == {"count": 1, "median": 7.0, "max": 7.0}


@pytest.mark.parametrize(
    ("got", "workload", "said"),
    [
        (replace(GOT, records=99), IDENTITY, "99 of 100 records arrived"),
        (replace(GOT, number_sum=4951), IDENTITY, "add up to 4951, those sent to 4950"),
        (replace(GOT, windows=9), WORDCOUNT, "9 windows instead of 0"),
    ],
)
def test_wrong_results_end_the_benchmark(got: OperatorResult, workload: str, said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        check(outcome(got, workload))


def test_flinks_results_are_checked_too() -> None:
    case = Case(IDENTITY, 2, records=50)
    flink.check(case, {"records": 100, "number_sum": 4950, "windows": 0})
    with pytest.raises(SystemExit, match="99 of 100 records"):
        flink.check(case, {"records": 99, "number_sum": 4950, "windows": 0})
    counted = Case(WORDCOUNT, records=1000, words=10)
    flink.check(counted, {"records": 1000, "number_sum": 0, "windows": 100})
    with pytest.raises(SystemExit, match="90 windows with 1000 of 1000 records"):
        flink.check(counted, {"records": 1000, "number_sum": 0, "windows": 90})
