"""Alternation, and the figures that runs come to."""

from collections import Counter
from functools import partial
from itertools import pairwise

import pytest

from shuffle_transport.bench.measure import Run, alternate, order, ratio_of_pairs, throughput

GIB = 1 << 30


def test_alternate_runs_each_once_to_warm_up_and_then_in_turn() -> None:
    ran: list[str] = []

    def work(name: str) -> Run:
        ran.append(name)
        return Run(1.0, 0.5, 0.5)

    runs = alternate({name: partial(work, name) for name in "ABC"}, 3)
    assert "".join(ran) == "ABC" + "ABC" + "ACB" + "CAB"
    assert {name: len(own) for name, own in runs.items()} == {"A": 3, "B": 3, "C": 3}


@pytest.mark.parametrize(("names", "rounds"), [("AB", 2), ("ABC", 6), ("ABCD", 4), ("ABCDE", 10)])
def test_order_favours_nobody(names: str, rounds: int) -> None:
    rows = [order(names, number) for number in range(rounds)]
    assert all(sorted(row) == list(names) for row in rows)
    places = Counter((place, name) for row in rows for place, name in enumerate(row))
    assert set(places.values()) == {rounds // len(names)}
    assert len(places) == len(names) ** 2
    neighbours = Counter(pair for row in rows for pair in pairwise(row))
    assert len(set(neighbours.values())) == 1
    assert len(neighbours) == len(names) * (len(names) - 1)


def test_ratio_is_the_median_of_the_pairs_not_the_ratio_of_medians() -> None:
    mine, base = [1.0, 4.0, 9.0], [1.0, 2.0, 20.0]
    assert ratio_of_pairs(mine, base) == {"median": 1.0, "pairs": [1.0, 2.0, 0.45]}


def test_throughput_ratio_is_above_one_for_the_faster_side() -> None:
    slow = [Run(seconds, 0.5, 0.25) for seconds in (2.0, 4.0, 3.0)]
    fast = [Run(seconds, 0.2, 0.3) for seconds in (1.0, 1.0, 2.0)]
    sides = throughput({"base": slow, "other": fast}, GIB, 1000, "base")
    assert sides["base"]["ratio"]["pairs"] == [1.0, 1.0, 1.0]
    assert sides["other"]["ratio"] == {"median": 2.0, "pairs": [2.0, 4.0, 1.5]}
    assert sides["base"]["gib_s"] == 0.333
    assert sides["other"]["blocks_s"] == 1000
    assert sides["base"]["cpu_s_per_gib"] == {"client": 0.5, "peer": 0.25}
