"""From batches with rows of all partitions to blocks with rows of one, before a columnar writer sends them.

1. Batches gather, with the partition of each row, until there is enough that slices of it are worth their overhead.
2. One sort of the partition numbers (a radix sort) and one `take` bring the rows into the order of partitions.
3. Slices of the result gather per partition, until they make a block or the memory budget is used up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shuffle_api.columnar.arrays import check_movable, data_bytes, taken, with_columns
from shuffle_api.columnar.ipc import owned
from shuffle_api.columnar.joining import copied, fitted, holds_dictionary, joined
from shuffle_api.columnar.partitioners import Partitioner
from shuffle_api.columnar.schemas import check_same_schema, declared_schema
from shuffle_api.columnar.slices import Chunk, Slice
from shuffle_api.errors import InvalidArgument
from shuffle_api.values import ShuffleSpec

SLICE_BYTES = 32 << 10  # what a slice is to have on average: below, its overhead shows
CHUNK_BYTES = 4 << 20  # what is sorted at once, unless there are many partitions: small enough for the caches

Emit: TypeAlias = Callable[[int, Any], None]
EmitSlices: TypeAlias = Callable[[int, list[Slice]], None]
Numbers: TypeAlias = npt.NDArray[np.integer[Any]]


class SliceGatherer:
    """Takes batches, hands out slices that make a block of one partition: `emit(partition, slices)`.

    Rows of one partition keep their order. All batches have one schema; metadata of it is that of the first, or of the
    one that the driver declared. Nothing of a batch is referred to when `add` returns.

    Memory: about `buffer_bytes` in all, of which batches that were given and not yet copied are part. A quarter of it
    is sorted at once at most; a batch that is larger is cut. That holds if `emit` leaves no reference to the slices.

    :ivar schema: that of the batches; None before the first one, unless it was declared.
    """

    def __init__(self, spec: ShuffleSpec, emit: EmitSlices, *, block_bytes: int, buffer_bytes: int) -> None:
        self._spec, self._emit, self._block_bytes = spec, emit, block_bytes
        self._chunk_bytes = min(max(CHUNK_BYTES, SLICE_BYTES * spec.partitions), max(1, buffer_bytes // 4))
        self._most = max(1, buffer_bytes - 3 * self._chunk_bytes)  # beside a chunk, its copy, and that in order
        # Narrow numbers are sorted by radix, a pass for each byte.
        self._kind = np.uint8 if spec.partitions <= 1 << 8 else np.uint16 if spec.partitions <= 1 << 16 else np.int32
        self.schema = declared_schema(spec)
        self._chunk: list[tuple[Any, Numbers]] = []
        self._chunk_size = self._owned = 0  # `_owned` of the batches in `_chunk` are copies already
        self._dictionaries = self._checked_types = False
        self._slices: dict[int, list[Slice]] = {}
        self._sizes: dict[int, float] = {}
        self._held = 0
        self._failed = False

    def add(self, batch: Any, partitioner: Partitioner) -> None:
        """Take a RecordBatch, all of it or (when this raises) nothing.

        :raises InvalidArgument: another schema than before, a column that cannot be reordered, or what the
            partitioner raises or says is not within the shuffle; an earlier call failed while it handed out rows, so
            that some are missing.
        """
        self._check_whole()
        batch = self._conformed(batch)
        if not batch.num_rows:
            return
        partitions = self._checked(partitioner.partitions_of(batch, self._spec.partitions), batch)
        # Cut into equal parts: a part that is a chunk by itself need not be joined with others, which is a copy.
        rows = -(-batch.num_rows // max(1, -(-data_bytes(batch) // self._chunk_bytes)))
        for at in range(0, batch.num_rows, rows):
            part = batch.slice(at, rows)
            size = data_bytes(part)
            self._failed = True  # until it has gone well
            if self._chunk_size + size > self._chunk_bytes:
                self._distribute()
            if self._dictionaries:
                part = owned(part)  # rows that are brought into order are copies, their dictionaries are not
            self._chunk.append((part, partitions[at : at + rows]))
            self._chunk_size += size
            if self._chunk_size >= self._chunk_bytes // 2:
                self._distribute()
            self._failed = False
        self._own()

    def flush(self) -> None:
        """Hand out everything.

        :raises InvalidArgument: an earlier call failed while it handed out rows.
        """
        self._check_whole()
        self._failed = True
        self._distribute()
        for partition in sorted(self._slices):
            self._hand_out(partition)
        self._held = 0
        self._failed = False

    def clear(self) -> None:
        """Forget everything."""
        self._chunk.clear()
        self._slices.clear()

    def _own(self) -> None:
        """What waits is a copy: the caller may change what it gave."""
        waiting = self._chunk[self._owned :]
        if waiting and not self._dictionaries:
            self._chunk[self._owned :] = [(copied(part), numbers) for part, numbers in waiting]
        self._owned = len(self._chunk)

    def _check_whole(self) -> None:
        if self._failed:
            raise InvalidArgument(
                "an earlier write failed half-way, rows of it are missing",
                remedy="write the map again as a new attempt",
                shuffle=self._spec.id,
            )

    def _conformed(self, batch: Any) -> Any:
        """The batch with the schema of the first one."""
        if not self._checked_types:
            check_movable(batch.schema)
            self.schema = batch.schema if self.schema is None else self.schema
            self._dictionaries = any(map(holds_dictionary, batch.schema.types))
            self._checked_types = True
        if batch.schema.equals(self.schema, check_metadata=True):
            return batch
        check_same_schema(self.schema, batch.schema, self._spec)
        return with_columns(batch.columns, self.schema, batch.num_rows)

    def _checked(self, partitions: npt.NDArray[Any], batch: Any) -> Numbers:
        if partitions.shape != (batch.num_rows,) or not np.issubdtype(partitions.dtype, np.integer):
            raise InvalidArgument(
                f"the partitioner gave {partitions.dtype} of shape {partitions.shape} for {batch.num_rows} rows",
                remedy="give one integer per row",
                shuffle=self._spec.id,
            )
        self._spec.check_partition(int(partitions.min()))
        self._spec.check_partition(int(partitions.max()))
        return partitions.astype(self._kind)

    def _distribute(self) -> None:
        if not self._chunk:
            return
        batches = [batch for batch, _ in self._chunk]
        partitions = np.concatenate([numbers for _, numbers in self._chunk])
        self._chunk, size, self._chunk_size, self._owned = [], self._chunk_size, 0, 0
        whole = joined(batches)
        ordered = Chunk(taken(whole, np.argsort(partitions, kind="stable")))
        counts = np.bincount(partitions)
        per_row = size / len(partitions)
        at = 0
        for partition in np.flatnonzero(counts).tolist():
            count = int(counts[partition])
            self._slices.setdefault(partition, []).append(Slice(ordered, at, count))
            self._sizes[partition] = self._sizes.get(partition, 0.0) + count * per_row
            at += count
            if self._sizes[partition] >= self._block_bytes:
                self._hand_out(partition)
        # A slice keeps the whole chunk in memory, until the last slice of the chunk is handed out.
        self._held += size
        if self._held >= self._most:
            for partition in sorted(self._slices):
                self._hand_out(partition)
            self._held = 0

    def _hand_out(self, partition: int) -> None:
        del self._sizes[partition]
        self._emit(partition, self._slices.pop(partition))


class BatchGatherer(SliceGatherer):
    """The same, but the slices are joined: `emit(partition, batch)`."""

    def __init__(self, spec: ShuffleSpec, emit: Emit, *, block_bytes: int, buffer_bytes: int) -> None:
        def emit_joined(partition: int, slices: list[Slice]) -> None:
            for batch in fitted(joined([part.batch for part in slices]), self.schema):
                emit(partition, batch)

        super().__init__(spec, emit_joined, block_bytes=block_bytes, buffer_bytes=buffer_bytes)
