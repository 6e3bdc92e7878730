"""bench.harness.compare: what counts as the same result."""

from datetime import date
from decimal import Decimal

import pytest

from bench.harness.compare import rows_equal


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([], []),
        ([(1, "x"), (2, None)], [(2, None), (1, "x")]),
        ([(1,), (1,), (2,)], [(1,), (2,), (1,)]),
        ([(0.1 + 0.2,)], [(0.3,)]),
        ([(float("nan"),)], [(float("nan"),)]),
        ([(Decimal("1.50"), date(2013, 1, 1))], [(Decimal("1.5"), date(2013, 1, 1))]),
        ([(Decimal("0.049985"),)], [(0.04998529583825443,)]),
        ([(b"ab", [1, 2.0])], [(bytearray(b"ab"), [1, 2.0000000000000004])]),
        ([("k", 1.0, 5.0), ("k", 1.0000000000000002, 6.0)], [("k", 1.0, 6.0), ("k", 1.0000000000000002, 5.0)]),
    ],
)
def test_rows_equal_accepts_the_same_rows_in_any_order(
    a: list[tuple[object, ...]], b: list[tuple[object, ...]]
) -> None:
    assert rows_equal(a, b, ordered=False) is None
    assert rows_equal(b, a, ordered=False) is None


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ([(1,)], [], "1 rows against 0"),
        ([(1, 2)], [(1,)], "widths"),
        ([(1,), (1,), (2,)], [(1,), (2,), (2,)], "only in the first: (1,)"),
        ([("x", 1.0)], [("x", 1.001)], "nearest ('x', 1.001)"),
        ([(Decimal("1.50"),)], [(Decimal("1.51"),)], "Decimal('1.50')"),
        ([(Decimal("0.05"),)], [(0.0551,)], "0.0551"),
        ([(None,)], [(0.0,)], "None"),
        ([(True,)], [(1.5,)], "True"),
    ],
)
def test_rows_equal_describes_the_first_difference(
    a: list[tuple[object, ...]], b: list[tuple[object, ...]], said: str
) -> None:
    assert said in str(rows_equal(a, b, ordered=False))


def test_rows_equal_ordered_wants_the_nth_rows_to_agree() -> None:
    assert rows_equal([(1, 0.1 + 0.2), (2, 0.0)], [(1, 0.3), (2, 0.0)], ordered=True) is None
    assert rows_equal([(1,), (2,)], [(2,), (1,)], ordered=True) == "row 0: (1,) against (2,)"
