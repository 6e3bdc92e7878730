"""The oracle of the fault explorer finds each way in which records can be wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput, ShuffleHandle, ShuffleSpec, Totals
from tests.faults.explore.ledger import Finding, Ledger
from tests.faults.explore.records import Record, Size, Source, problems, written

SIZE = Size(partitions=3, records=20, size=10)
ALL = range(3)
ALLOWED = {0: {0}, 1: {0, 2}}


def whole() -> list[Record]:
    """A right read of two maps."""
    return [record for map in (0, 1) for record in written(Source(1, 1, map, 0), SIZE)]


def kinds(records: list[Record], partitions: range = ALL) -> set[str]:
    return {problem.kind for problem in problems(records, 1, 1, SIZE, partitions, ALLOWED)}


def test_right_reads_have_no_problem() -> None:
    assert kinds(whole()) == set()
    assert kinds([record for record in whole() if record[0] in range(1, 3)], range(1, 3)) == set()
    assert kinds(sorted(whole(), key=lambda record: record[0])) == set()


def swapped(records: list[Record]) -> list[Record]:
    first, *others = records
    at = next(n for n, record in enumerate(others) if record[0] == first[0])
    return [others[at], *others[:at], first, *others[at + 1 :]]


WRONG: dict[str, Callable[[list[Record]], list[Record]]] = {
    "lost": lambda records: records[1:],
    "repeated": lambda records: [records[0], *records],
    "reordered": swapped,
    "mixed": lambda records: [*records, next(written(Source(1, 1, 1, 2), SIZE))],
    "foreign": lambda records: [*records, next(written(Source(2, 1, 1, 0), SIZE))],
    "damaged": lambda records: [(records[0][0], bytes([records[0][1][0] ^ 1]) + records[0][1][1:]), *records[1:]],
    "refused": lambda records: [*records[:20], *written(Source(1, 1, 1, 1), SIZE)],
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_read_is_found(kind: str) -> None:
    assert kind in kinds(WRONG[kind](whole()))


def test_record_of_another_partition_or_shuffle_is_found() -> None:
    (partition, record), *others = whole()
    assert "damaged" in kinds([(partition + 1, record), *others])
    assert "foreign" in kinds([*written(Source(1, 2, 0, 0), SIZE), *whole()[20:]])


def ledger(*, may_lose: bool = False) -> Ledger:
    spec = ShuffleSpec(ShuffleId("app", 1), 3, 2)
    return Ledger(1, 1, ShuffleHandle("remote", spec, "127.0.0.1:1"), SIZE, 2, lambda: may_lose)


def output(map: int, attempt: int) -> MapOutput:
    return MapOutput(MapAttempt(map, attempt), "w", Totals())


def found(findings: list[Finding]) -> list[str]:
    return [finding.kind for finding in findings]


def test_ledger_finds_a_second_winner_and_one_that_was_refused() -> None:
    book = ledger()
    first, second = book.attempt(0), book.attempt(0)
    book.asked(first)
    book.asked(second)
    assert found(book.acknowledged(first, output(0, 0))) == []
    assert found(book.acknowledged(second, output(0, 0))) == []
    assert found(book.acknowledged(second, output(0, 1))) == ["winner"]
    book.refused(second)
    assert found(book.located([output(0, 1)])) == ["refused"]


def test_ledger_lets_another_attempt_win_after_a_loss() -> None:
    book = ledger()
    first, second = book.attempt(0), book.attempt(0)
    book.asked(first)
    book.acknowledged(first, output(0, 0))
    book.give_up(0)
    book.asked(second)
    assert found(book.acknowledged(second, output(0, 1))) == []
    assert found(book.located([output(0, 1)])) == []


def test_ledger_takes_another_winner_where_a_fault_may_have_lost_the_first_unseen() -> None:
    book = ledger(may_lose=True)
    first, second = book.attempt(0), book.attempt(0)
    book.asked(first)
    book.asked(second)
    book.acknowledged(first, output(0, 0))
    assert found(book.acknowledged(second, output(0, 1))) == []
    assert found(book.located([output(0, 1)])) == []
    assert book.lost == {(0, 0)}
    book.refused(first)
    assert found(book.located([output(0, 0)])) == ["refused"]
