"""Ranges of a pull that lie in compacted files, and where their blocks do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shuffle_server.store.compacted_file import CompactedFile, CompactedPlace
from shuffle_server.store.page_cache import read_ahead
from shuffle_server.store.ranges import OutputRange

AHEAD_BYTES = 8 << 20  # of a compacted file, announced to the disk before they are read


@dataclass(frozen=True, slots=True)
class CompactedRun:
    """Ranges that follow one another in a pull, of the same partitions, and for each its place in a compacted file."""

    ranges: Sequence[OutputRange]
    places: Sequence[CompactedPlace]

    @property
    def files(self) -> list[CompactedFile]:
        """Those that have any of it."""
        return list({id(place.file): place.file for place in self.places}.values())

    def rows(self, *, ahead: bool) -> FoundRows:
        """Where the blocks of these ranges lie, in their order. `ahead`: have the disk begin to read them.

        Raises TornFile, OSError, StorageFailed (the directory hangs).
        """
        first, end = self.ranges[0].first, self.ranges[0].end
        files = self.files
        rows, asked, sources = [], [], []
        for file in files if ahead else ():
            low, high = file.span(first, end)
            read_ahead(file.fd, low, min(high - low, AHEAD_BYTES))
        for number, file in enumerate(files):
            with file.home.calls.request():
                found = file.rows(first, end)
            wanted = np.full(len(file), -1, np.int64)  # where in the run an output of the file is
            at, numbers = zip(
                *((at, place.number) for at, place in enumerate(self.places) if place.file is file), strict=True
            )
            wanted[list(numbers)] = at
            positions = wanted[found["output"]]
            if len(numbers) < len(file):
                found, positions = found[positions >= 0], positions[positions >= 0]
            rows.append(found)
            asked.append(positions)
            sources.append(np.full(len(found), number, np.int64))
        order = np.argsort(np.concatenate(asked), kind="stable")  # inside an output by partition, as it was written
        return FoundRows(files, *(np.concatenate(each)[order] for each in (rows, asked, sources)))


class FoundRows(NamedTuple):
    """Rows (dtype COMPACTED_ROW) of `files`; for each the range it is of, and which of the files it lies in."""

    files: list[CompactedFile]
    rows: np.ndarray
    ranges: np.ndarray
    sources: np.ndarray
