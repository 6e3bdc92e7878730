"""Tables, sizes and times as people read them on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


def table(head: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> str:
    """Columns as wide as they need be; `(none)` where there is no row."""
    cells = [head, *(tuple(printable(str(cell)) for cell in row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines if rows else [*lines, "(none)"])


def printable(text: str) -> str:
    """An application chooses its name; it must not play with the terminal of who looks at it."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def counted(count: int, what: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def size_shown(count: float) -> str:
    """`1.5 GiB`."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in UNITS:
        count /= 1024
        if count < 1024 or unit == UNITS[-1]:
            break
    return f"{count:.1f} {unit}"


def time_shown(seconds: float) -> str:
    """`30 ms`, `45 s`, `12 min`, `5 h`, `3 d`."""
    if 0 < seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    for limit, size, unit in ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172_800.0, 3600.0, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"
