"""Which map outputs have been merged into compacted files, and which are to be.

A partition out of a thousand outputs costs a disk a thousand seeks, and a thousand files to open. So outputs are copied
in the background into compacted files, out of which pulls read:
- where their blocks are small for the disk and memory does not hold what this worker holds: soon after they were
  committed, while they are in the page cache (`CompactionModel`);
- where they are small themselves, whatever the disk: when pulls take little of each of many for the second time.

From the moment that a compacted file has its name, it is what holds its outputs: the catalog says so, and their own
files are deleted, mostly before the kernel has written them to the disk. Whatever happens to one of them (it is lost,
another attempt takes its place, it moves to the object store) is a change of its entry in the catalog, and a byte in
the file for the next start. A reader goes on, as with a file that is deleted meanwhile.
"""

from __future__ import annotations

import heapq
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from shuffle_api.errors import MapOutputLost, Overloaded, StorageFailed, StorageFull
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store.catalog import Catalog, CatalogEntry
from shuffle_server.store.compacted_file import CompactedFile, CompactedPlace
from shuffle_server.store.compacted_run import CompactedRun
from shuffle_server.store.compacted_writer import CompactionInput, write_compacted
from shuffle_server.store.compaction_model import (
    COMPACTED,
    FAILED,
    LARGE,
    CompactionModel,
    WritePace,
    left_over,
)
from shuffle_server.store.directories import Directories
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.format import Description, TornFile
from shuffle_server.store.output_file import OutputFile
from shuffle_server.store.pending_outputs import PendingOutputs
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.statistics import CompactionStatistics, ShuffleCompaction

log = logging.getLogger(__name__)

LEAST_OUTPUTS = 32  # read file by file in a pull, after which they are merged
LEAST_MERGED = 8  # in a compacted file, of those that are merged for being small
MOST_MERGED = 512  # in a compacted file: their files are open while it is made
MOST_ROWS = 512 << 10  # in a compacted file: they are in memory several times while it is made
MOST_RUN_ROWS = 256 << 10  # of a pull, looked up in compacted files at once: more are, output by output
LITTLE_BYTES = 32 << 10  # of an output: what takes longer to find than to read
MOST_TOLD = 64  # shuffles in the statistics
PAUSE_SECONDS = 60.0  # after a compacted file could not be made

Open = Callable[[ShuffleId, MapAttempt], tuple[OutputFile, int]]


class _GivenUp(Exception):
    """A compacted file that nobody needs any more."""


class CompactedFiles:
    """The compacted files of one store. Thread-safe.

    :param open: opens the file of an output (`Store.open_output`).
    :param prune: closes files that are kept open and are not to be read any more.
    :param model: decides what is compacted.
    :param sync: compacted files are on the disk before the files of their outputs are deleted.
    """

    def __init__(
        self,
        catalog: Catalog,
        directories: Directories,
        open: Open,
        prune: Callable[[], None],
        model: CompactionModel,
        *,
        sync: bool = False,
    ) -> None:
        self._catalog, self._open, self._model, self._sync = catalog, open, model, sync
        self._directories, self._prune = directories, prune
        self._lock = threading.Lock()
        self._compacted: set[ShuffleId] = set()  # of which something is in a compacted file
        self._decided: dict[ShuffleId, Counter[str]] = {}  # outputs by decision
        self._read: set[ShuffleId] = set()  # of which many small outputs have been read once
        self._due: dict[ShuffleId, list[MapAttempt]] = {}
        self._left: dict[ShuffleId, int] = {}  # outputs that could not be merged: it takes more for another try
        self._not_before = 0.0
        self._pending = PendingOutputs()
        self._rewritten = 0
        self.wanted = threading.Event()
        """Set while there is something to merge."""

    # ------------------------------------------------------------------ read

    def read(self, shuffle: ShuffleId) -> None:
        """A shuffle is read: its outputs that wait for more are compacted soon."""
        self._pending.read(shuffle)

    def runs(self, shuffle: ShuffleId, ranges: Sequence[OutputRange]) -> Iterator[CompactedRun | OutputRange]:
        """A pull's ranges in their order, those that can be read out of compacted files together."""
        self._pending.read(shuffle)
        if shuffle not in self._compacted:
            yield from ranges
            return
        held = self._catalog.held(shuffle)
        found: list[CompactedPlace] = []
        first = 0  # of the ranges that are in `found`
        for at, wanted in enumerate(ranges):
            entry = held.get(wanted.output.map)
            here = entry.place if entry is not None and entry.output == wanted.output else None
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

    def _run(self, places: list[CompactedPlace], ranges: Sequence[OutputRange]) -> Iterator[CompactedRun | OutputRange]:
        """Ranges that compacted files have. One alone, or many blocks, are looked up by the outputs' own indexes."""
        if len(places) > 1:
            run = CompactedRun(ranges, places)
            if sum(file.blocks(ranges[0].first, ranges[0].end) for file in run.files) <= MOST_RUN_ROWS:
                yield run
                return
        yield from ranges

    def note(self, shuffle: ShuffleId, outputs: Sequence[MapAttempt]) -> None:
        """A pull has taken little of each of these, file by file."""
        if not self._model.options.below or len(outputs) < LEAST_OUTPUTS or time.monotonic() < self._not_before:
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
        return held is not None and held.bytes <= self._model.options.below

    def _held(self, shuffle: ShuffleId, output: MapAttempt) -> CatalogEntry | None:
        held = self._catalog.find(shuffle, output.map)
        return held if held and held.output == output and not held.tiered and held.place is None else None

    # ------------------------------------------------------------------ merge

    def committed(self, description: Description, home: DataDirectory, *, fresh: bool = True) -> None:
        """An output can be read from now on; not `fresh`: since a process before this one."""
        totals = description.totals
        if self._model.options.below and totals.bytes < totals.blocks * home.device.seek_bytes:
            self._pending.add(description, home, fresh=fresh)

    def recovered(self, description: Description, held: CatalogEntry) -> None:
        """An output was found by recovery."""
        if held.place is None:
            self.committed(description, held.home, fresh=False)
            return
        with self._lock:
            self._compacted.add(description.shuffle_id)
            self._decided.setdefault(description.shuffle_id, Counter())[COMPACTED] += 1

    @property
    def reads_ahead(self) -> bool:
        """Whether pulls are to have the disk read ahead."""
        return self._model.disk_bound

    def merge(self, stopping: Callable[[], bool] = lambda: False) -> int:
        """Merge the outputs that are due; returns the number of compacted files made. Others stay as they are."""
        made = 0
        if self._model.options.below:
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
                if shuffle not in self._catalog:
                    continue  # its directory went meanwhile
                log.warning("map outputs of %s are not compacted now: %s", shuffle, error)
                self._count(shuffle, FAILED, len(outputs))
                self._not_before = time.monotonic() + PAUSE_SECONDS
        return made

    def _next(self) -> tuple[ShuffleId, list[MapAttempt], bool] | None:
        with self._lock:
            if self._due:
                return *self._due.popitem(), False
            self.wanted.clear()
        if not self._model.disk_bound or time.monotonic() < self._not_before:
            return None
        taken = self._pending.take(self._model.group_bytes, self._has_time)
        return None if taken is None else (*taken, True)

    def _cached(self) -> bool:
        """Whether the page cache holds what waits to be compacted."""
        return self._pending.bytes + self._model.group_bytes <= self._model.cached_bytes

    def _has_time(self, home: DataDirectory) -> bool:
        """Whether a disk has time for a compacted file: half of its bandwidth."""
        return self._cached() or left_over(home) >= home.device.bandwidth / 2

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
                    self._count(shuffle, LARGE, len(sources))
                    continue
                pace = self._pace(shuffle, home, stopping)
                made += self._enter(shuffle, sources, write_compacted(home, shuffle, sources, pace, sync=self._sync))
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
            if held is None or (not by_disk and held.bytes > self._model.options.below):
                continue
            if sources and held.home is not sources[0].held.home:
                left.append(output)
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
        pace = WritePace(home, self._cached)

        def written(size: int) -> None:
            if stopping() or shuffle not in self._catalog or time.monotonic() < self._not_before:
                raise _GivenUp
            pace.spend(size)

        return written

    def _count_left(self, shuffle: ShuffleId, outputs: Sequence[MapAttempt]) -> None:
        with self._lock:
            if shuffle in self._catalog:
                self._left[shuffle] = sum(self._held(shuffle, output) is not None for output in outputs)

    def _enter(self, shuffle: ShuffleId, sources: Sequence[CompactionInput], file: CompactedFile) -> bool:
        """The outputs lie in a compacted file from now on, and their own files go."""
        with self._lock:
            if shuffle in self._catalog:
                self._compacted.add(shuffle)
            self._rewritten += sum(source.held.bytes for source in sources)
        moved = []
        for number, source in enumerate(sources):
            entry = self._catalog.change(shuffle, source.held, place=CompactedPlace(file, number))
            if entry is None:
                file.drop(number)  # it was removed meanwhile
            else:
                moved.append(entry)
        file.home.caretaker.later(partial(self._delete_own_files, shuffle, moved))
        self._count(shuffle, COMPACTED, len(moved))
        log.info("compacted %d map outputs of %s: %d bytes", len(moved), shuffle, file.bytes)
        return bool(moved)

    def _count(self, shuffle: ShuffleId, decision: str, outputs: int) -> None:
        self._model.count(decision, outputs)
        with self._lock:
            if shuffle in self._catalog:
                self._decided.setdefault(shuffle, Counter())[decision] += outputs

    def _delete_own_files(self, shuffle: ShuffleId, entries: Sequence[CatalogEntry]) -> None:
        """On the thread that deletes removed outputs too: an attempt that is not held any more may be published anew
        after that."""
        for entry in entries:
            if self._catalog.find(shuffle, entry.output.map) is entry:
                entry.home.unlink(entry.home.paths.committed_text(shuffle, entry.output))
        self._prune()

    # ------------------------------------------------------------------ forget

    def forget(self, shuffles: Iterable[ShuffleId]) -> None:
        """They are over: no compacted file is made of what was noted of them."""
        shuffles = tuple(shuffles)
        self._pending.forget(shuffles)
        with self._lock:
            for shuffle in shuffles:
                for table in (self._due, self._left, self._decided):
                    table.pop(shuffle, None)
                self._read.discard(shuffle)
                self._compacted.discard(shuffle)

    def close(self) -> None:
        """Forget all of them."""
        self._pending.close()
        with self._lock:
            for table in (self._due, self._left, self._read):
                table.clear()

    def statistics(self) -> CompactionStatistics:
        files = [file for home in self._directories for file in list(home.compacted)]
        return CompactionStatistics(
            bytes=sum(file.bytes for file in files if file.shuffle in self._compacted),
            rewritten=self._rewritten,
            pending=self._pending.bytes,
            disk_bound=self._model.disk_bound,
            decisions=self._model.decisions(),
            shuffles=self._of_shuffles(),
        )

    def _of_shuffles(self) -> tuple[ShuffleCompaction, ...]:
        pending = self._pending.of_shuffles()
        with self._lock:
            decided = {shuffle: dict(counts) for shuffle, counts in self._decided.items()}
        shuffles = heapq.nlargest(
            MOST_TOLD,
            pending.keys() | decided.keys(),
            lambda shuffle: (pending.get(shuffle, 0), sum(decided.get(shuffle, {}).values())),
        )
        return tuple(ShuffleCompaction(each, decided.get(each, {}), pending.get(each, 0)) for each in shuffles)
