"""What a pull asks for."""

from __future__ import annotations

from dataclasses import dataclass

from shuffle_api.ids import MapAttempt


@dataclass(frozen=True, slots=True)
class OutputRange:
    """Partitions [first, end) of one map output."""

    output: MapAttempt
    first: int
    end: int
