"""Which small map outputs have been merged into compacted files, and which are to be.

A partition out of a thousand small outputs costs a thousand files to open. So where pulls take little of each of many
small outputs for the second time, these are copied in the background into compacted files, out of which later pulls
read.

An output is read from a compacted file only as long as the catalog holds exactly what was copied: whatever happens to
it (it is lost, another attempt takes its place, it moves to the object store) ends that in the same moment. Who is
reading goes on, as with a file that is deleted meanwhile.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from shuffle_api.errors import MapOutputLost, Overloaded, StorageFailed, StorageFull
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store.catalog import Catalog, CatalogEntry
from shuffle_server.store.compacted_file import CompactedFile, CompactionInput, build
from shuffle_server.store.directories import Directories
from shuffle_server.store.format import INDEX_ROW, TornFile
from shuffle_server.store.output_file import OutputFile
from shuffle_server.store.ranges import OutputRange

log = logging.getLogger(__name__)

COMPACTED_BYTES = 4 << 20  # payload and rows of one compacted file, which are in memory several times while it is made
LEAST_OUTPUTS = 32  # read file by file in a pull, after which they are merged
LEAST_MERGED = 8  # in a compacted file
MOST_MERGED = 512  # in a compacted file: their files are open while it is made
LITTLE_BYTES = 32 << 10  # of an output: what takes longer to find than to read
PAUSE_SECONDS = 60.0  # after a compacted file could not be made

Open = Callable[[ShuffleId, MapAttempt], tuple[OutputFile, int]]


@dataclass(frozen=True, slots=True)
class CompactedRun:
    """Ranges that follow one another in a pull, of the same partitions, out of one compacted file, at `places` in
    it."""

    compacted: CompactedFile
    places: np.ndarray
    ranges: Sequence[OutputRange]


class CompactedFiles:
    """The compacted files of one store. Thread-safe.

    :param open: opens the file of an output (`Store.open_output`).
    :param below: outputs with more payload are not merged; 0: none are.
    """

    def __init__(self, catalog: Catalog, directories: Directories, open: Open, below: int) -> None:
        self._catalog, self._directories, self._open, self._below = catalog, directories, open, below
        self._lock = threading.Lock()
        self._places: dict[ShuffleId, dict[MapAttempt, tuple[CompactedFile, int]]] = {}
        self._read: set[ShuffleId] = set()  # of which many small outputs have been read once
        self._due: dict[ShuffleId, list[MapAttempt]] = {}
        self._left: dict[ShuffleId, int] = {}  # outputs that could not be merged: it takes more for another try
        self._not_before = 0.0
        self.rewritten = 0
        """Payload bytes that have been written again, by partition, into the compacted files made so far."""
        self.wanted = threading.Event()
        """Set while there is something to merge."""

    # ------------------------------------------------------------------ read

    def runs(self, shuffle: ShuffleId, ranges: Sequence[OutputRange]) -> Iterator[CompactedRun | OutputRange]:
        """A pull's ranges in their order, those that can be read out of a compacted file together."""
        places = self._places.get(shuffle)
        if not places:
            yield from ranges
            return
        compacted: CompactedFile | None = None
        found: list[int] = []
        first = 0  # of the ranges that are in `found`
        for at, wanted in enumerate(ranges):
            here, place = self._place(shuffle, places, wanted.output)
            goes_on = (
                here is not None
                and here is compacted
                and place > found[-1]
                and (wanted.first, wanted.end) == (ranges[first].first, ranges[first].end)
            )
            if not goes_on:
                yield from _run(compacted, found, ranges[first:at])
                compacted, found, first = here, [], at
            found.append(place)
        yield from _run(compacted, found, ranges[first:])

    def _place(
        self, shuffle: ShuffleId, places: dict[MapAttempt, tuple[CompactedFile, int]], output: MapAttempt
    ) -> tuple[CompactedFile | None, int]:
        compacted, place = places.get(output, (None, 0))
        if compacted is None or self._catalog.find(shuffle, output.map) is not compacted.held[place]:
            return None, 0
        return compacted, place

    def note(self, shuffle: ShuffleId, outputs: Sequence[MapAttempt]) -> None:
        """A pull has taken little of each of these, file by file."""
        if not self._below or len(outputs) < LEAST_OUTPUTS or time.monotonic() < self._not_before:
            return
        small = [output for output in outputs if self._small(shuffle, output)]
        if len(small) < LEAST_OUTPUTS:
            return
        with self._lock:
            if len(small) < 2 * self._left.get(shuffle, 0):
                return
            if shuffle in self._read:
                self._due[shuffle] = small
                self.wanted.set()
            self._read.add(shuffle)

    def _small(self, shuffle: ShuffleId, output: MapAttempt) -> CatalogEntry | None:
        held = self._catalog.find(shuffle, output.map)
        return held if held and held.output == output and held.bytes <= self._below and not held.tiered else None

    # ------------------------------------------------------------------ merge

    def merge(self, stopping: Callable[[], bool] = lambda: False) -> int:
        """Merge the outputs that are due; returns the number of compacted files made. Others stay as they are."""
        made = 0
        while not stopping():
            with self._lock:
                if not self._due:
                    self.wanted.clear()
                    return made
                shuffle, outputs = self._due.popitem()
            try:
                made += self._merge(shuffle, outputs, stopping)
                self._count_left(shuffle, outputs)
            except (OSError, TornFile, StorageFull, StorageFailed, Overloaded) as error:
                log.warning("small map outputs of %s are not merged now: %s", shuffle, error)
                self._not_before = time.monotonic() + PAUSE_SECONDS
        return made

    def _merge(self, shuffle: ShuffleId, outputs: Sequence[MapAttempt], stopping: Callable[[], bool]) -> int:
        made, at = 0, 0
        while at < len(outputs) and not stopping():
            with ExitStack() as files:
                sources: list[CompactionInput] = []
                size = 0
                while at < len(outputs) and size < COMPACTED_BYTES and len(sources) < MOST_MERGED:
                    source = self._source(shuffle, outputs[at])
                    at += 1
                    if source is not None:
                        files.callback(os.close, source.fd)
                        sources.append(source)
                        size += source.held.bytes + len(source.file.index) * INDEX_ROW.itemsize
                if len(sources) >= LEAST_MERGED:
                    compacted = build(self._directories.choose(), sources)
                    made += compacted is not None and self._enter(shuffle, compacted)
        return made

    def _count_left(self, shuffle: ShuffleId, outputs: Sequence[MapAttempt]) -> None:
        with self._lock:
            if shuffle in self._catalog:
                places = self._places.get(shuffle, {})
                self._left[shuffle] = sum(output not in places for output in outputs)

    def _source(self, shuffle: ShuffleId, output: MapAttempt) -> CompactionInput | None:
        held = self._small(shuffle, output)
        if held is None:
            return None
        try:
            return CompactionInput(held, *self._open(shuffle, output))
        except MapOutputLost:
            return None  # its next reader finds out, and says so

    def _enter(self, shuffle: ShuffleId, compacted: CompactedFile) -> bool:
        with self._lock:
            if shuffle not in self._catalog:
                return False
            # Readers look at it without the lock: it is replaced, not changed.
            places = dict(self._places.get(shuffle, {}))
            places.update({held.output: (compacted, place) for place, held in enumerate(compacted.held)})
            self._places[shuffle] = places
            self.rewritten += sum(held.bytes for held in compacted.held)
        log.info("merged %d small map outputs of %s into a region", len(compacted.held), shuffle)
        return True

    # ------------------------------------------------------------------ forget

    def forget(self, shuffles: Iterable[ShuffleId]) -> None:
        """These are removed from the catalog, or their compacted files are not wanted any more."""
        with self._lock:
            for shuffle in shuffles:
                for table in (self._places, self._due, self._left):
                    table.pop(shuffle, None)
                self._read.discard(shuffle)

    def close(self) -> None:
        """Forget all of them."""
        with self._lock:
            for table in (self._places, self._due, self._left, self._read):
                table.clear()

    def bytes(self) -> int:
        """What the compacted files take on the disks."""
        with self._lock:
            files = {compacted for places in self._places.values() for compacted, _ in places.values()}
        return sum(compacted.bytes for compacted in files)


def _run(
    compacted: CompactedFile | None, places: list[int], ranges: Sequence[OutputRange]
) -> Iterator[CompactedRun | OutputRange]:
    if compacted is None or len(ranges) < 2:
        yield from ranges
    else:
        yield CompactedRun(compacted, np.array(places, np.int64), ranges)
