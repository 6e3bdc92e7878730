"""What a pull asks for."""

from __future__ import annotations

from typing import NamedTuple

from shuffle_api.ids import MapAttempt


class OutputRange(NamedTuple):  # made for each output of each pull, and a frozen dataclass takes thrice as long to make
    """Partitions [first, end) of one map output."""

    output: MapAttempt
    first: int
    end: int
