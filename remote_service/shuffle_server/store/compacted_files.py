"""Which map outputs have been merged into compacted files, and which are to be.

A partition out of a thousand outputs costs a disk a thousand seeks, and a thousand files to open. So outputs are copied
in the background into compacted files, out of which pulls read:
- where their blocks are small for the disk and memory does not hold what this worker holds: soon after they were
  committed, while they are in the page cache (`CompactionModel`);
- where they are small themselves, whatever the disk: when pulls take little of each of many for the second time.

An output is read from a compacted file only as long as the catalog holds exactly what was copied: whatever happens to
it (it is lost, another attempt takes its place, it moves to the object store) ends that in the same moment. Who is
reading goes on, as with a file that is deleted meanwhile.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from shuffle_api.errors import MapOutputLost, Overloaded, StorageFailed, StorageFull
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store.catalog import Catalog, CatalogEntry
from shuffle_server.store.compacted_file import CompactedFile, CompactionInput, build
from shuffle_server.store.compaction_model import (
    COMPACTED,
    FAILED,
    LARGE,
    CompactionModel,
    CompactionOptions,
    WritePace,
)
from shuffle_server.store.directories import Directories
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.format import Description, TornFile
from shuffle_server.store.output_file import OutputFile
from shuffle_server.store.pending_outputs import PendingOutputs
from shuffle_server.store.quota import AppQuota
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.statistics import CompactionStatistics

log = logging.getLogger(__name__)

LEAST_OUTPUTS = 32  # read file by file in a pull, after which they are merged
LEAST_MERGED = 8  # in a compacted file, of those that are merged for being small
MOST_MERGED = 512  # in a compacted file: their files are open while it is made
MOST_ROWS = 512 << 10  # in a compacted file: they are in memory several times while it is made
LITTLE_BYTES = 32 << 10  # of an output: what takes longer to find than to read
PAUSE_SECONDS = 60.0  # after a compacted file could not be made

Open = Callable[[ShuffleId, MapAttempt], tuple[OutputFile, int]]
Places = Mapping[MapAttempt, tuple[CompactedFile, int]]


class _GivenUp(Exception):
    """A compacted file that nobody needs any more."""


@dataclass(frozen=True, slots=True)
class CompactedRun:
    """Ranges that follow one another in a pull, of the same partitions, and for each the compacted file that has it,
    and its place in there."""

    ranges: Sequence[OutputRange]
    places: Sequence[tuple[CompactedFile, int]]


class CompactedFiles:
    """The compacted files of one store. Thread-safe.

    :param open: opens the file of an output (`Store.open_output`).
    :param quota: counts what the store holds.
    """

    def __init__(
        self,
        catalog: Catalog,
        directories: Directories,
        open: Open,
        quota: AppQuota,
        options: CompactionOptions,
    ) -> None:
        self._catalog, self._open, self._below = catalog, open, options.below
        self._model = CompactionModel(quota.total, options.page_cache)
        self._lock = threading.Lock()
        self._places: dict[ShuffleId, dict[MapAttempt, tuple[CompactedFile, int]]] = {}
        self._read: set[ShuffleId] = set()  # of which many small outputs have been read once
        self._due: dict[ShuffleId, list[MapAttempt]] = {}
        self._left: dict[ShuffleId, int] = {}  # outputs that could not be merged: it takes more for another try
        self._not_before = 0.0
        self._pending = PendingOutputs()
        self._rewritten = 0
        self.wanted = threading.Event()
        """Set while there is something to merge."""
        for home in directories:
            home.drop_copies = partial(self._drop_copies, home)

    # ------------------------------------------------------------------ read

    def runs(self, shuffle: ShuffleId, ranges: Sequence[OutputRange]) -> Iterator[CompactedRun | OutputRange]:
        """A pull's ranges in their order, those that can be read out of compacted files together."""
        self._pending.read(shuffle)
        places = self._places.get(shuffle)
        if not places:
            yield from ranges
            return
        found: list[tuple[CompactedFile, int]] = []
        first = 0  # of the ranges that are in `found`
        for at, wanted in enumerate(ranges):
            here = self._place(shuffle, places, wanted.output)
            same = found and (wanted.first, wanted.end) == (ranges[first].first, ranges[first].end)
            if here is None or not same:
                yield from self._run(found, ranges[first:at])
                found, first = [], at
            if here is None:
                yield wanted
                first = at + 1
            else:
                found.append(here)
        yield from self._run(found, ranges[first:])

    def _place(self, shuffle: ShuffleId, places: Places, output: MapAttempt) -> tuple[CompactedFile, int] | None:
        here = places.get(output)
        if here is None or self._catalog.find(shuffle, output.map) is not here[0].held[here[1]]:
            return None
        return here

    def _run(
        self, places: list[tuple[CompactedFile, int]], ranges: Sequence[OutputRange]
    ) -> Iterator[CompactedRun | OutputRange]:
        """Ranges that compacted files have: out of their own files where that is a seek each, and no more than the
        disk reads in the time of one."""
        if len(places) > 1:
            files = {compacted for compacted, _ in places}
            spans = [compacted.span(ranges[0].first, ranges[0].end) for compacted in files]
            each = sum(high - low for low, high in spans) / sum(len(compacted.held) for compacted in files)
            if each <= max(LITTLE_BYTES, places[0][0].home.device.seek_bytes):
                yield CompactedRun(ranges, places)
                return
        yield from ranges

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

    def _small(self, shuffle: ShuffleId, output: MapAttempt) -> bool:
        held = self._held(shuffle, output)
        return held is not None and held.bytes <= self._below

    def _held(self, shuffle: ShuffleId, output: MapAttempt) -> CatalogEntry | None:
        held = self._catalog.find(shuffle, output.map)
        return held if held and held.output == output and not held.tiered else None

    # ------------------------------------------------------------------ merge

    def committed(self, description: Description, home: DataDirectory, *, fresh: bool = True) -> None:
        """An output can be read from now on; not `fresh`: since a process before this one."""
        totals = description.totals
        if self._below and totals.bytes < totals.blocks * home.device.seek_bytes:
            self._pending.add(description, home, fresh=fresh)

    @property
    def reads_ahead(self) -> bool:
        """Whether pulls are to have the disk read ahead."""
        return self._model.disk_bound

    def merge(self, stopping: Callable[[], bool] = lambda: False) -> int:
        """Merge the outputs that are due; returns the number of compacted files made. Others stay as they are."""
        made = 0
        if self._below:
            self._model.look()
            self._pending.keep(self._catalog.__contains__)
        while not stopping() and (due := self._next()) is not None:
            shuffle, outputs, by_disk = due
            try:
                made += self._merge(shuffle, outputs, by_disk, stopping)
                self._count_left(shuffle, outputs)
            except _GivenUp:
                continue
            except (OSError, TornFile, StorageFull, StorageFailed, Overloaded) as error:
                log.warning("map outputs of %s are not compacted now: %s", shuffle, error)
                self._model.count(FAILED, len(outputs))
                self._not_before = time.monotonic() + PAUSE_SECONDS
        return made

    def _next(self) -> tuple[ShuffleId, list[MapAttempt], bool] | None:
        with self._lock:
            if self._due:
                return *self._due.popitem(), False
            self.wanted.clear()
        if not self._model.disk_bound or time.monotonic() < self._not_before:
            return None
        taken = self._pending.take(self._model.group_bytes)
        return None if taken is None else (*taken, True)

    def _merge(
        self, shuffle: ShuffleId, outputs: Sequence[MapAttempt], by_disk: bool, stopping: Callable[[], bool]
    ) -> int:
        made = 0
        left = sorted(outputs)
        while left and not stopping():
            with ExitStack() as files:
                sources, left = self._sources(shuffle, left, by_disk, files)
                if len(sources) < (2 if by_disk else LEAST_MERGED):
                    continue
                home = sources[0].held.home
                if by_disk and not self._model.pays(home.device, [source.file.index for source in sources]):
                    self._model.count(LARGE, len(sources))
                    continue
                made += self._enter(shuffle, build(home, sources, self._pace(shuffle, home, stopping)))
        return made

    def _sources(
        self, shuffle: ShuffleId, outputs: list[MapAttempt], by_disk: bool, files: ExitStack
    ) -> tuple[list[CompactionInput], list[MapAttempt]]:
        """Those of a compacted file, all in one directory, with their files open, and the outputs that are left."""
        sources: list[CompactionInput] = []
        left: list[MapAttempt] = []
        size = rows = 0
        for at, output in enumerate(outputs):
            if size >= self._model.group_bytes or rows >= MOST_ROWS or len(sources) >= MOST_MERGED:
                left += outputs[at:]
                break
            held = self._held(shuffle, output)
            if held is None or (not by_disk and held.bytes > self._below):
                continue
            if sources and held.home is not sources[0].held.home:
                left.append(output)
                continue
            if self._place(shuffle, self._places.get(shuffle, {}), output) is not None:
                continue
            try:
                source = CompactionInput(held, *self._open(shuffle, output))
            except MapOutputLost:
                continue  # its next reader finds out, and says so
            files.callback(os.close, source.fd)
            sources.append(source)
            size, rows = size + held.bytes, rows + len(source.file.index)
        return sources, left

    def _pace(self, shuffle: ShuffleId, home: DataDirectory, stopping: Callable[[], bool]) -> Callable[[int], None]:
        pace = WritePace(home)

        def written(size: int) -> None:
            if stopping() or shuffle not in self._catalog or time.monotonic() < self._not_before:
                raise _GivenUp
            pace.spend(size)

        return written

    def _count_left(self, shuffle: ShuffleId, outputs: Sequence[MapAttempt]) -> None:
        with self._lock:
            if shuffle in self._catalog:
                places = self._places.get(shuffle, {})
                self._left[shuffle] = sum(output not in places for output in outputs)

    def _enter(self, shuffle: ShuffleId, compacted: CompactedFile) -> bool:
        with self._lock:
            if shuffle not in self._catalog:
                return False
            # Readers look at it without the lock: it is replaced, not changed.
            places = dict(self._places.get(shuffle, {}))
            places.update({held.output: (compacted, place) for place, held in enumerate(compacted.held)})
            self._places[shuffle] = places
            self._rewritten += sum(held.bytes for held in compacted.held)
        self._model.count(COMPACTED, len(compacted.held))
        log.info("compacted %d map outputs of %s: %d bytes", len(compacted.held), shuffle, compacted.bytes)
        return True

    # ------------------------------------------------------------------ forget

    def forget(self, shuffles: Iterable[ShuffleId]) -> None:
        """Their compacted files go, and none is made of what was noted of them."""
        shuffles = tuple(shuffles)
        self._pending.forget(shuffles)
        with self._lock:
            for shuffle in shuffles:
                for table in (self._places, self._due, self._left):
                    table.pop(shuffle, None)
                self._read.discard(shuffle)

    def _drop_copies(self, home: DataDirectory) -> int:
        """A directory is full: the compacted files in it go, and no more are made for a while. Bytes given back."""
        self._not_before = time.monotonic() + PAUSE_SECONDS
        with self._lock:
            dropped = {file for places in self._places.values() for file, _ in places.values() if file.home is home}
            for shuffle, places in list(self._places.items()):
                self._places[shuffle] = {output: place for output, place in places.items() if place[0] not in dropped}
        return sum(compacted.bytes for compacted in dropped)

    def close(self) -> None:
        """Forget all of them."""
        self._pending.close()
        with self._lock:
            for table in (self._places, self._due, self._left, self._read):
                table.clear()

    def statistics(self) -> CompactionStatistics:
        with self._lock:
            files = {compacted for places in self._places.values() for compacted, _ in places.values()}
        return CompactionStatistics(
            bytes=sum(compacted.bytes for compacted in files),
            rewritten=self._rewritten,
            pending=self._pending.bytes,
            disk_bound=self._model.disk_bound,
            decisions=self._model.decisions(),
        )
