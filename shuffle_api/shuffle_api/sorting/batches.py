"""Arrow batches in an order: sorted and combined at the writer, merged at the reader."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from shuffle_api.buffer import Buffer
from shuffle_api.columnar.arrays import check_movable, data_bytes, taken
from shuffle_api.columnar.blocks import BlockCodec
from shuffle_api.columnar.ipc import decode, encode, owned
from shuffle_api.columnar.joining import fitted, joined
from shuffle_api.columnar.order import Order
from shuffle_api.columnar.partitioners import Partitioner
from shuffle_api.columnar.reading import check_arrow
from shuffle_api.columnar.schemas import check_same_schema, declared_schema
from shuffle_api.errors import InvalidArgument
from shuffle_api.interfaces import ShuffleReader, ShuffleWriter, SupportsReadBlocks, SupportsWriteBlock
from shuffle_api.sorting.combining import Combiner, last_group
from shuffle_api.sorting.merging import merge_batches
from shuffle_api.sorting.spill import Blob, Spill
from shuffle_api.values import MapOutput, ShuffleHandle, ShuffleSpec

PIECE_BYTES = 256 << 10  # a batch of a sorted partition, in a block or in the spill
FAN_IN = 64  # runs that are merged at once: bounds the pieces in memory to two of them per run

Piece: TypeAlias = tuple[Blob, int]
"""A batch that was put aside, and its number of rows."""
Run: TypeAlias = dict[int, deque[Piece]]
"""Of each partition the pieces of a sorted run."""
Arrivals: TypeAlias = dict[int, dict[int, deque[Piece]]]
"""What a reader has fetched: by partition and map."""
Numbers: TypeAlias = npt.NDArray[np.integer[Any]]


class SortedBatchWriter:
    """Writes batches to `writer` in `order` within each partition; rows with equal keys keep their order.

    With `combine`, rows with equal keys become one. Leaving the context without `commit` aborts.

    Memory: about `memory` bytes; more rows are sorted and spilled (see `shuffle_api.sorting.spill`) and merged at
    the commit. Whatever happens, an abort or a commit frees the spill.

    :param writer: of a shuffle of content `arrow`, and `SupportsWriteBlock`; this object commits or aborts it.
    :param handle: that of the shuffle.
    :raises InvalidArgument: the shuffle's content is not `arrow`, or the writer takes no blocks.
    """

    def __init__(
        self,
        writer: ShuffleWriter,
        handle: ShuffleHandle,
        order: Order,
        *,
        combine: Combiner | None = None,
        memory: int = 64 << 20,
        spill_dir: str | None = None,
    ) -> None:
        check_arrow(handle.spec, "use SortedWriter")
        if not isinstance(writer, SupportsWriteBlock):
            raise InvalidArgument(f"{type(writer).__name__} has no write_block", remedy="use a plugin that has")
        self._writer, self._blocks, self._spec = writer, writer, handle.spec
        self._order, self._combine, self._spill_dir = order, combine, spill_dir
        self._memory = memory // 4  # beside what is held: its copy in one piece, that in order, what is encoded
        self._spill = Spill(memory=0, directory=spill_dir)
        self._schema = declared_schema(handle.spec)
        self._checked_types = False
        self._held: list[tuple[Any, Numbers]] = []
        self._held_bytes = 0
        self._runs: list[Run] = []
        self._committed: MapOutput | None = None
        self._open = True

    @property
    def spilled_bytes(self) -> int:
        """Bytes in the spill's file now."""
        return self._spill.spilled_bytes

    def write_batch(self, batch: Any, partitioner: Partitioner) -> None:
        """As `SupportsWriteBatch.write_batch`; raises what that raises, and:

        :raises InvalidArgument: the batch has not the columns of the order, or not those of the combiner.
        :raises StorageFull, StorageFailed: the spill's directory is full, or fails.
        """
        self._check_open()
        self._check_schema(batch)
        if not batch.num_rows:
            return
        numbers = partitioner.partitions_of(batch, self._spec.partitions)
        self._spec.check_partition(int(numbers.min()))
        self._spec.check_partition(int(numbers.max()))
        rows = max(1, int(self._memory * batch.num_rows / max(1, data_bytes(batch))))
        for at in range(0, batch.num_rows, rows):
            part = owned(batch.slice(at, rows))
            self._held.append((part, numbers[at : at + rows].astype(np.int32)))
            self._held_bytes += data_bytes(part)
            if self._held_bytes >= self._memory:
                self._make_room()

    def commit(self) -> MapOutput:
        """As `ShuffleWriter.commit`; raises what that and `write_batch` raise."""
        if self._committed is None:
            self._check_open()
            try:
                self._write_all()
                self._committed = self._writer.commit()
            finally:
                self._release()  # what failed half-way must never commit
        return self._committed

    def abort(self) -> None:
        """As `ShuffleWriter.abort`."""
        if self._open:
            self._release()
        self._writer.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.abort()

    def _write_all(self) -> None:
        rest, codec = dict(self._sorted()), BlockCodec(self._spec)
        for partition in sorted({*rest, *(p for run in self._runs for p in run)}):
            runs = [read_run(self._spill, run.pop(partition)) for run in self._runs if partition in run]
            if partition in rest:
                runs.append(iter([rest.pop(partition)]))
            for piece in merged(runs, self._order, self._combine):
                for block in fitted(piece, self._schema):
                    self._blocks.write_block(partition, codec.encode(block), block.num_rows)

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidArgument(
                "the writer has committed, aborted or failed", remedy="write the map again as a new attempt"
            )

    def _check_schema(self, batch: Any) -> None:
        if not self._checked_types:
            check_movable(batch.schema)
            self._order.sorted_rows(self._order.keys_of(batch.slice(0, 0)))
            if self._combine is not None:
                self._combine.check(batch.schema, self._order)
            self._schema = batch.schema if self._schema is None else self._schema
            self._checked_types = True
        check_same_schema(self._schema, batch.schema, self._spec)

    def _release(self) -> None:
        self._open = False
        self._held.clear()
        self._runs.clear()
        self._spill.close()

    def _sorted(self) -> Iterator[tuple[int, Any]]:
        """What is held, taken out: a sorted and combined batch for each partition."""
        if not self._held:
            return
        whole = joined([batch.replace_schema_metadata(self._schema.metadata) for batch, _ in self._held])
        numbers = np.concatenate([part for _, part in self._held])
        self._held.clear()
        self._held_bytes = 0
        rows = self._order.sorted_rows(self._order.keys_of(whole))
        kind = np.uint16 if self._spec.partitions <= 1 << 16 else np.int32  # narrow numbers are sorted by radix
        rows = rows[np.argsort(numbers[rows].astype(kind), kind="stable")]
        whole = taken(whole, rows)
        at = 0
        for partition, count in enumerate(np.bincount(numbers).tolist()):
            if count:
                part = whole.slice(at, count)
                yield partition, part if self._combine is None else self._combine.combine(part, self._order)
                at += count

    def _make_room(self) -> None:
        try:
            self._runs.append({p: write_run(self._spill, pieces_of(batch)) for p, batch in self._sorted()})
            if len(self._runs) >= FAN_IN:
                self._merge_runs()
        except BaseException:
            self._release()  # rows are missing now
            raise

    def _merge_runs(self) -> None:
        """One run out of all: into a new file, so that the space of the old one is free again."""
        target = Spill(memory=0, directory=self._spill_dir)
        try:
            together: Run = {}
            for partition in sorted({p for run in self._runs for p in run}):
                runs = [read_run(self._spill, run.pop(partition)) for run in self._runs if partition in run]
                together[partition] = write_run(target, merged(runs, self._order, self._combine))
        except BaseException:
            target.close()
            raise
        self._spill.close()
        self._spill, self._runs = target, [together]


def merged_batches(
    reader: ShuffleReader,
    handle: ShuffleHandle,
    order: Order,
    *,
    combine: Combiner | None = None,
    memory: int = 64 << 20,
    spill_dir: str | None = None,
) -> Iterator[tuple[int, Any]]:
    """The batches of a reader partition by partition, each in `order`: a k-way merge of what the maps wrote.

    Every map must have been written by a `SortedBatchWriter` with the same order. Rows with equal keys come in the
    order of their maps; with `combine` they become one. First everything is fetched, into `memory` bytes and above that
    into a spill; then it is merged, with two blocks per map in memory (of more than 64 maps in several passes).

    Raises what `read_batches` raises, StorageFull and StorageFailed for the spill's directory, and:

    :raises InvalidArgument: the reader has no blocks (`SupportsReadBlocks`), or a map was not written in this order.
    """
    check_arrow(handle.spec, "use merged_records")
    if not isinstance(reader, SupportsReadBlocks):
        raise InvalidArgument(f"{type(reader).__name__} has no read_blocks", remedy="use a plugin that has")
    with Spill(memory=memory, directory=spill_dir) as spill:
        fetched: Arrivals = defaultdict(lambda: defaultdict(deque))
        for partition, output, payload, records in reader.read_blocks():
            fetched[partition][output.map].append((spill.put(payload), records))
        check, codec = _Check(handle.spec, order, combine), BlockCodec(handle.spec)
        for partition in sorted(fetched):
            maps = fetched.pop(partition)
            runs = [check.checked(read_run(spill, maps[m], codec.decode), partition, m) for m in sorted(maps)]
            while len(runs) > FAN_IN:
                groups = [runs[at : at + FAN_IN] for at in range(0, len(runs), FAN_IN)]
                runs = [read_run(spill, write_run(spill, merged(group, order, combine))) for group in groups]
            for batch in merged(runs, order, combine):
                for piece in fitted(batch, check.schema):
                    yield partition, piece


class _Check:
    """Of the batches that come from maps: one schema, in order.

    :ivar schema: the declared one, or that of the first batch.
    """

    def __init__(self, spec: ShuffleSpec, order: Order, combine: Combiner | None) -> None:
        self._spec, self._order, self._combine = spec, order, combine
        self.schema = declared_schema(spec)
        self._combinable = combine is None

    def checked(self, run: Iterator[Any], partition: int, map: int) -> Iterator[Any]:
        """The batches of one map and partition."""
        before: list[Any] = []  # the keys of the last row
        for batch in run:
            self.schema = batch.schema if self.schema is None else self.schema
            if not self._combinable and self._combine is not None:
                self._combine.check(batch.schema, self._order)
                self._combinable = True
            check_same_schema(self.schema, batch.schema, self._spec)
            keys = self._order.keys_of(batch)
            rows = self._order.sorted_rows(joined([*before, keys]))
            if (np.diff(rows) < 0).any():
                raise InvalidArgument(
                    f"partition {partition} of map {map} is not in the order of {', '.join(self._order.columns)}",
                    remedy="write with a SortedBatchWriter of the same order",
                    shuffle=self._spec.id,
                )
            before = [keys.slice(keys.num_rows - 1)]
            yield batch


def merged(runs: list[Iterator[Any]], order: Order, combine: Combiner | None) -> Iterator[Any]:
    """Sorted runs as one, combined, in pieces of about PIECE_BYTES at most."""
    together = merge_batches(runs, order)
    for batch in together if combine is None else _combined(together, order, combine):
        yield from pieces_of(batch)


def _combined(batches: Iterator[Any], order: Order, combine: Combiner) -> Iterator[Any]:
    """One row per key, also where a key's rows end one batch and begin the next: the last key waits."""
    waiting: list[Any] = []
    for batch in batches:
        together = combine.combine(joined([*waiting, batch]), order)
        start = last_group(together, order)
        if start:
            yield together.slice(0, start)
        waiting = [together.slice(start)]
    yield from waiting


def pieces_of(batch: Any) -> Iterator[Any]:
    """A batch cut into pieces of about PIECE_BYTES."""
    rows = max(1, int(PIECE_BYTES * batch.num_rows / max(1, data_bytes(batch))))
    for at in range(0, batch.num_rows, rows):
        yield batch.slice(at, rows)


def write_run(spill: Spill, batches: Iterable[Any]) -> deque[Piece]:
    """Put sorted batches aside."""
    return deque((spill.put(encode(batch)), batch.num_rows) for batch in batches)


def read_run(spill: Spill, pieces: deque[Piece], decode: Callable[[Buffer, int], Any] = decode) -> Iterator[Any]:
    """The batches of a run, of what `encode` or a writer made; one is in memory at a time, and each is read once."""
    while pieces:
        blob, rows = pieces.popleft()
        yield decode(spill.get(blob), rows)
