"""Records in the order of a key: sorted and combined at the writer, merged at the reader. MapReduce's pipeline."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from shuffle_api.buffer import Buffer
from shuffle_api.errors import InvalidArgument
from shuffle_api.interfaces import ShuffleReader, ShuffleWriter, SupportsReadBlocks
from shuffle_api.records import frame, unpack_records
from shuffle_api.sorting.spill import Blob, Spill
from shuffle_api.values import MapOutput

Key: TypeAlias = Callable[[bytes], Any]
Combine: TypeAlias = Callable[[bytes, bytes], bytes]
Keyed: TypeAlias = tuple[Any, bytes]
"""A record with its key before it."""

OVERHEAD = 150  # bytes of Python objects around a record and its key
PIECE_BYTES = 64 << 10  # what is read at once of a run that was spilled
FAN_IN = 64  # runs that are merged at once: bounds the pieces in memory to 4 MiB


class SortedWriter(ShuffleWriter):
    """Writes to `writer` in the order of `key` within each partition; records with equal keys keep their order.

    With `combine`, neighbours with equal keys become one record: `combine(one, next)`, which must have the same key
    and be associative. Combining happens as memory fills up and again at the end: one record per key and partition is
    left.

    Memory: about `memory` bytes; more records are sorted and spilled (see `shuffle_api.sorting.spill`) and merged at
    the commit. `write` and `commit` may raise StorageFull and StorageFailed for the spill's directory; the attempt has
    failed then. Whatever happens, an abort or a commit frees it.

    :param writer: of a shuffle of content `records`; this object commits or aborts it.
    """

    def __init__(
        self,
        writer: ShuffleWriter,
        key: Key,
        *,
        combine: Combine | None = None,
        memory: int = 64 << 20,
        spill_dir: str | None = None,
    ) -> None:
        self._writer, self._key, self._combine, self._memory = writer, key, combine, memory
        self._spill_dir = spill_dir
        self._spill = Spill(memory=0, directory=spill_dir)
        self._records: dict[int, list[Keyed]] = defaultdict(list)
        self._held = 0
        self._runs: list[Run] = []
        self._committed: MapOutput | None = None
        self._open = True

    @property
    def spilled_bytes(self) -> int:
        """Bytes in the spill's file now."""
        return self._spill.spilled_bytes

    def write(self, partition: int, record: Buffer) -> None:
        self._check_open()
        data = bytes(record)
        self._records[partition].append((self._key(data), data))
        self._held += len(data) + OVERHEAD
        if self._held >= self._memory:
            self._make_room()

    def commit(self) -> MapOutput:
        if self._committed is not None:
            return self._committed
        self._check_open()
        try:
            self._sort()
            for partition in sorted({*self._records, *(p for run in self._runs for p in run)}):
                for _, record in merge([*self._spilled(partition), self._records.pop(partition, [])], self._combine):
                    self._writer.write(partition, record)
            self._committed = self._writer.commit()
        finally:
            self._release()  # what failed half-way must never commit
        return self._committed

    def abort(self) -> None:
        if self._open:
            self._release()
        self._writer.abort()

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidArgument(
                "the writer has committed, aborted or failed", remedy="write the map again as a new attempt"
            )

    def _spilled(self, partition: int) -> list[Iterator[Keyed]]:
        """The runs of a partition, taken out."""
        return [read_run(self._spill, run.pop(partition), self._key) for run in self._runs if partition in run]

    def _release(self) -> None:
        self._open = False
        self._records.clear()
        self._runs.clear()
        self._spill.close()

    def _sort(self) -> None:
        """Sort and combine what is in memory."""
        for partition, records in self._records.items():
            records.sort(key=_key_of)
            if self._combine is not None:
                self._records[partition] = list(combined(records, self._combine))

    def _make_room(self) -> None:
        try:
            self._sort()
            self._spill_unless_combining_was_enough()
        except BaseException:
            self._release()  # records are missing now
            raise

    def _spill_unless_combining_was_enough(self) -> None:
        self._held = sum(len(record) + OVERHEAD for records in self._records.values() for _, record in records)
        if self._held < self._memory // 2:
            return
        self._runs.append({p: write_run(self._spill, records) for p, records in self._records.items()})
        self._records.clear()
        self._held = 0
        if len(self._runs) >= FAN_IN:
            self._merge_runs()

    def _merge_runs(self) -> None:
        """One run out of all: into a new file, so that the space of the old one is free again."""
        target = Spill(memory=0, directory=self._spill_dir)
        try:
            merged: Run = {}
            for partition in sorted({p for run in self._runs for p in run}):
                merged[partition] = write_run(target, merge(self._spilled(partition), self._combine))
        except BaseException:
            target.close()
            raise
        self._spill.close()
        self._spill, self._runs = target, [merged]


def merged_records(
    reader: ShuffleReader,
    key: Key,
    *,
    combine: Combine | None = None,
    memory: int = 64 << 20,
    spill_dir: str | None = None,
) -> Iterator[tuple[int, bytes]]:
    """The records of a reader partition by partition, each in the order of `key`: a k-way merge of what the maps wrote.

    Every map must have been written by a `SortedWriter` with the same key. Records with equal keys come in the order of
    their maps; with `combine` they become one. First everything is fetched, into `memory` bytes and above that
    into a spill; then it is merged, with one block per map in memory (of more than 64 maps in several passes).

    Raises what iterating over the reader raises, StorageFull and StorageFailed for the spill's directory, and:

    :raises InvalidArgument: the reader has no blocks (`SupportsReadBlocks`), or a map was not written in this order.
    """
    if not isinstance(reader, SupportsReadBlocks):
        raise InvalidArgument(f"{type(reader).__name__} has no read_blocks", remedy="use a plugin that has")
    with Spill(memory=memory, directory=spill_dir) as spill:
        fetched: dict[int, dict[int, deque[Blob]]] = defaultdict(lambda: defaultdict(deque))
        for partition, output, payload, _ in reader.read_blocks():
            fetched[partition][output.map].append(spill.put(payload))
        for partition in sorted(fetched):
            maps = fetched.pop(partition)
            runs: list[Iterable[Keyed]] = [_checked(read_run(spill, maps[m], key), partition, m) for m in sorted(maps)]
            while len(runs) > FAN_IN:
                groups = [runs[at : at + FAN_IN] for at in range(0, len(runs), FAN_IN)]
                runs = [read_run(spill, write_run(spill, merge(group, combine)), key) for group in groups]
            for _, record in merge(runs, combine):
                yield partition, record


Run: TypeAlias = dict[int, deque[Blob]]
"""Of each partition the pieces of a sorted run."""


def merge(runs: Iterable[Iterable[Keyed]], combine: Combine | None) -> Iterator[Keyed]:
    """Sorted runs as one; records with equal keys in the order of their runs, and combined."""
    together = heapq.merge(*runs, key=_key_of)
    return together if combine is None else combined(together, combine)


def combined(records: Iterable[Keyed], combine: Combine) -> Iterator[Keyed]:
    """Neighbours with equal keys as one."""
    rest = iter(records)
    first = next(rest, None)
    if first is None:
        return
    key, record = first
    for following, other in rest:
        if following == key:
            record = combine(record, other)
        else:
            yield key, record
            key, record = following, other
    yield key, record


def write_run(spill: Spill, records: Iterable[Keyed]) -> deque[Blob]:
    """Put sorted records aside, in pieces."""
    pieces: deque[Blob] = deque()
    piece = bytearray()
    for _, record in records:
        piece += frame(record)
        if len(piece) >= PIECE_BYTES:
            pieces.append(spill.put(bytes(piece)))
            piece.clear()
    if piece:
        pieces.append(spill.put(bytes(piece)))
    return pieces


def read_run(spill: Spill, pieces: deque[Blob], key: Key) -> Iterator[Keyed]:
    """The records of a run with their keys; one piece of it is in memory at a time, and each is read once."""
    while pieces:
        for record in unpack_records(spill.get(pieces.popleft())):
            yield key(record), record


def _checked(run: Iterator[Keyed], partition: int, map: int) -> Iterator[Keyed]:
    last: Any = None
    for number, (key, record) in enumerate(run):
        if number and key < last:
            raise InvalidArgument(
                f"partition {partition} of map {map} is not in the order of the key: {key!r} follows {last!r}",
                remedy="write with a SortedWriter of the same key",
            )
        last = key
        yield key, record


def _key_of(keyed: Keyed) -> Any:
    return keyed[0]
