"""Are two query results the same? Exact on everything but floats, which may differ by the order of additions."""

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal

RELATIVE_TOLERANCE = 1e-9

Row = Sequence[object]


def rows_equal(a: Iterable[Row], b: Iterable[Row], ordered: bool) -> str | None:
    """None if both hold the same rows, else one line that describes the first difference.

    Floats agree within a relative 1e-9 (NaN equals NaN); a decimal and a float agree if the float rounds to the
    decimal's last digit, since engines differ in the type of an average. With ``ordered`` the n-th rows must agree,
    else the rows are compared as multisets.
    """
    left, right = [tuple(row) for row in a], [tuple(row) for row in b]
    if len(left) != len(right):
        return f"{len(left)} rows against {len(right)}"
    widths = {len(row) for row in left + right}
    if len(widths) > 1:
        return f"rows of different widths: {sorted(widths)}"
    if ordered:
        for number, (one, other) in enumerate(zip(left, right, strict=True)):
            if not _close(one, other):
                return f"row {number}: {one!r} against {other!r}"
        return None
    return _multisets_equal(left, right, widths.pop() if widths else 0)


def _multisets_equal(left: list[tuple[object, ...]], right: list[tuple[object, ...]], width: int) -> str | None:
    # Rows are grouped by their exact columns; only inside a group must approximate rows find their partners.
    exact = [i for i in range(width) if not any(_approximate(row[i]) for rows in (left, right) for row in rows)]
    waiting: dict[object, list[tuple[object, ...]]] = {}
    for row in right:
        waiting.setdefault(_frozen([row[i] for i in exact]), []).append(row)
    for row in left:
        group = waiting.get(_frozen([row[i] for i in exact]), [])
        partner = next((i for i in range(len(group) - 1, -1, -1) if _close(row, group[i])), None)
        if partner is None:
            nearest = f"; nearest {group[-1]!r}" if group else ""
            return f"only in the first: {row!r}{nearest}"
        del group[partner]
    return None


def _approximate(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_approximate(item) for item in value)
    if isinstance(value, dict):
        return any(_approximate(item) for item in value.values())
    return isinstance(value, float)


def _frozen(value: object) -> object:
    """A hashable value that is equal where the rows' values are."""
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, dict):
        return frozenset((_frozen(key), _frozen(item)) for key, item in value.items())
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    return value


def _close(one: object, other: object) -> bool:
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(_close(x, y) for x, y in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[key], other[key]) for key in one)
    if isinstance(one, float) and isinstance(other, Decimal):
        return _rounds_to(one, other)
    if isinstance(one, Decimal) and isinstance(other, float):
        return _rounds_to(other, one)
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other):
        return True
    if _number(one) and _number(other) and (isinstance(one, float) or isinstance(other, float)):
        return math.isclose(float(one), float(other), rel_tol=RELATIVE_TOLERANCE)  # type: ignore[arg-type]
    return _frozen(one) == _frozen(other)


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _rounds_to(value: float, decimal: Decimal) -> bool:
    exponent = decimal.as_tuple().exponent
    if not isinstance(exponent, int):  # NaN and infinities
        return math.isnan(value) and decimal.is_nan()
    half_digit = 0.5 * 10.0**exponent
    return math.isclose(value, float(decimal), rel_tol=RELATIVE_TOLERANCE, abs_tol=half_digit * (1 + 1e-6))
