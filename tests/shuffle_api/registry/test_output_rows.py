"""Rows of committed outputs, beside a dict of them."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import MapAttempt
from shuffle_api.registry.output_rows import OutputRows, RegistryNumbers
from shuffle_api.values import MapOutput, Totals

MAPS = st.integers(0, 200) | st.integers(1 << 31, (1 << 31) + 3) | st.integers(1 << 32, (1 << 32) + 3)
WORKERS = st.lists(st.sampled_from([f"w{number}" for number in range(5)]), min_size=1, max_size=4, unique=True)
COUNTS = st.integers(0, (1 << 32) - 1)
LARGE = st.integers(0, (1 << 60) - 1)
TOTALS = st.builds(Totals, COUNTS, LARGE, LARGE, LARGE, COUNTS)
CHANGES = st.lists(st.tuples(st.booleans(), MAPS, st.integers(0, (1 << 63) - 1), WORKERS, TOTALS), max_size=60)


@given(
    changes=CHANGES, first=MAPS, end=st.none() | MAPS, skipped=st.integers(0, 3), limit=st.none() | st.integers(0, 5)
)
def test_they_answer_as_a_dict_does(
    changes: list[tuple[bool, int, int, list[str], Totals]],
    first: int,
    end: int | None,
    skipped: int,
    limit: int | None,
) -> None:
    rows, outputs, known = OutputRows(), dict[int, MapOutput](), set[int]()
    for loses, map, attempt, (worker, *copies), totals in changes:
        if loses and map in outputs:
            rows.lose(map)
            del outputs[map]
        else:
            outputs[map] = MapOutput(MapAttempt(map, attempt), worker, totals, tuple(copies))
            rows.put(outputs[map])
            known.add(map)
    for each in (rows, rows.copy()):
        check(each, outputs, known)
        assert list(each.maps(first, end)) == sorted(
            map for map in known if first <= map and (end is None or map < end)
        )
        for worker in ("w0", "w4", "nobody"):
            held = each.held_by(worker)
            assert sorted(held, key=by_map) == [out for _, out in sorted(outputs.items()) if worker in out.workers]
            assert each.held_by(worker, skipped, limit) == held[skipped : None if limit is None else skipped + limit]
            till = 1 << 41 if end is None else end
            assert each.held_of(worker, first, till) == [out for out in held if first <= out.output.map < till]
            if held:
                lowest = sorted(out.output.map for out in held)[: 1 + skipped]
                assert each.range_at(worker, 1 + skipped) == (lowest[0], lowest[-1] + 1)


def check(rows: OutputRows, outputs: dict[int, MapOutput], known: set[int]) -> None:
    assert list(rows.values()) == [output for _, output in sorted(outputs.items())]
    assert (len(rows), rows.missing) == (len(outputs), len(known - outputs.keys()))
    assert all((map in rows, rows.get(map)) == (map in outputs, outputs.get(map)) for map in known | {7, 1 << 40})
    amounts: Counter[Any] = Counter()
    sizes: Counter[Any] = Counter()
    for output in outputs.values():
        amounts[output.workers] += 1
        sizes[output.workers] += output.totals.bytes
    assert rows.amounts() == {place: (count, sizes[place]) for place, count in amounts.items()}
    holders = Counter(worker for output in outputs.values() for worker in output.workers)
    assert sorted(rows.workers()) == sorted(holders)
    assert {worker: rows.count_at(worker) for worker in holders} == holders
    assert rows.count_at("nobody") == 0


def by_map(output: MapOutput) -> int:
    return output.output.map


def test_a_copy_stays_as_it_is() -> None:
    rows = OutputRows()
    output = MapOutput(MapAttempt(1, 0), "w0", Totals(bytes=5))
    rows.put(output)
    copy = rows.copy()
    assert copy == rows
    rows.put(output.at("w0", "w1"))
    rows.put(MapOutput(MapAttempt(2, 0), "w2", Totals()))
    assert copy != rows
    assert list(copy.values()) == [output]
    assert copy.amounts() == {("w0",): (1, 5)}


@pytest.mark.parametrize("totals", [Totals(blocks=1 << 32), Totals(bytes=-1), Totals(digest=1 << 32)])
def test_totals_that_do_not_fit_are_refused_and_nothing_changes(totals: Totals) -> None:
    rows = OutputRows()
    rows.put(MapOutput(MapAttempt(1, 0), "w0", Totals(bytes=5)))
    for map in (1, 2):
        with pytest.raises(InvalidArgument, match="cannot be recorded"):
            rows.put(MapOutput(MapAttempt(map, 1), "w1", totals))
    assert rows.workers() == ["w0"]
    assert list(rows.maps()) == [1]


def test_threads_that_number_the_same_workers_agree() -> None:
    numbers, names = RegistryNumbers(), [f"w{number}" for number in range(2000)]
    found: list[list[int]] = []
    begin = threading.Barrier(4)

    def number() -> None:
        begin.wait()
        found.append([numbers.of(name) for name in names])

    threads = [threading.Thread(target=number) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(each == found[0] for each in found)
    assert [numbers.names[each] for each in found[0]] == names
