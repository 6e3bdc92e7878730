"""Delays are taken from each block's first eight bytes."""

import json
from time import perf_counter_ns

import numpy as np
import pytest

from shuffle_transport.bench.arrivals import Arrivals, quantiles


def test_arrivals_measure_each_block_from_when_it_was_due() -> None:
    arrivals = Arrivals(32)
    late = 5_000_000_000
    blocks = np.zeros((3, 4), np.int64)
    blocks[:, 0] = perf_counter_ns() - np.array([0, late, late])
    blocks[:, 1:] = -1  # the rest of a block is not looked at
    arrivals.add(blocks.data.cast("B"))
    arrivals.add(blocks[:1].data.cast("B"))
    report = json.loads(arrivals.report())
    assert (report["messages"], report["blocks"]) == (2, 4)
    assert report["p50"] < late / 1000 <= report["max"]


def test_arrivals_of_nothing_are_a_report_too() -> None:
    assert json.loads(Arrivals(8).report())["blocks"] == 0


def test_quantiles_are_microseconds() -> None:
    found = quantiles(np.arange(0, 1_000_001, 1000))
    assert found == pytest.approx({"p50": 500.0, "p90": 900.0, "p99": 990.0, "p99_9": 999.0, "max": 1000.0})
