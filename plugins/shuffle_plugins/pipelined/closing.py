"""Closing several things, whatever one of them says."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def close_all(steps: Iterable[Callable[[], object]]) -> None:
    """Call every step, in order, then raise the first error that one of them raised."""
    first: Exception | None = None
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - what comes after must be closed too; raised below
            first = first or error
    if first is not None:
        raise first
