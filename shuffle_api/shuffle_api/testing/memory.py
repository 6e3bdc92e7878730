"""`MemoryShuffle`: a complete plugin without network, disk or processes, for tests and as an example to read.

Its shuffles live in the memory of the process that registered them. Tasks may run in any threads of it, each
with a plugin of its own: the handle's endpoint (`memory:<id>`) leads to the exchange that holds the data.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from shuffle_api.buffer import Buffer
from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import MapAttempt, ShuffleId, name_of, new_run
from shuffle_api.interfaces import NO_OPTIONS, Options, ShuffleMaster, ShufflePlugin, ShuffleReader, ShuffleWriter
from shuffle_api.options import option, parse_options
from shuffle_api.records import frame, unpack_records
from shuffle_api.testing.memory_service import MemoryBlock, MemoryService
from shuffle_api.values import BLOCKING, CONTENTS, MapOutput, ShuffleHandle, ShuffleSpec

if TYPE_CHECKING:
    from shuffle_api.columnar.gather import BatchGatherer
    from shuffle_api.columnar.partitioners import Partitioner

BLOCK_BYTES, BUFFER_BYTES = 256 << 10, 16 << 20  # how batches gather


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """The options of `MemoryShuffle`."""

    content: str = option("records", choices=CONTENTS, help="what the payloads of its shuffles are")


class MemoryShuffle(ShufflePlugin):
    """The in-memory plugin. Close it to free what it holds; its masters, writers and readers close with it."""

    name = "memory"
    mode = replace(BLOCKING, persistent=False)

    def __init__(self, options: Options = NO_OPTIONS) -> None:
        self._options = parse_options(MemoryOptions, options)
        self._exchange = MemoryService()
        self._lock = threading.Lock()
        self._open: WeakSet[MemoryMaster | MemoryWriter | MemoryReader] = WeakSet()
        self._closed = False

    def master(self, app: str) -> MemoryMaster:
        return self._opened(MemoryMaster(self._exchange, app, self._options.content))

    def writer(self, handle: ShuffleHandle, attempt: MapAttempt) -> MemoryWriter:
        return self._opened(MemoryWriter(MemoryService.find(handle.endpoint), handle.spec, attempt))

    def reader(self, handle: ShuffleHandle, partitions: range, maps: range | None = None) -> MemoryReader:
        return self._opened(MemoryReader(MemoryService.find(handle.endpoint), handle.spec, partitions, maps))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            opened = list(self._open)
        for each in opened:
            _close(each)
        self._exchange.close()

    def lose_map_output(self, handle: ShuffleHandle, map: int, reason: str = "lost by a test") -> None:
        """Lose the committed output of a map, to see what a program does then.

        :raises MapOutputNotWritten: there is none.
        """
        MemoryService.find(handle.endpoint).lose(handle.spec.id, map, reason)

    def _opened(self, each: T) -> T:
        with self._lock:
            if not self._closed:
                self._open.add(each)
                return each
        _close(each)
        raise InvalidArgument("the plugin is closed")


class MemoryMaster(ShuffleMaster):
    """Registers its application when made. Numbers its shuffles upwards from the highest ever used."""

    def __init__(self, exchange: MemoryService, app: str, content: str) -> None:
        self._exchange = exchange
        self._run = new_run(app)
        self._content = content
        self._lock = threading.Lock()
        self._next = 0
        self._closed = False
        exchange.register_app(self._run, instance=self._run)

    def register_shuffle(self, partitions: int, maps: int, *, shuffle: int | None = None) -> ShuffleHandle:
        with self._lock:
            if self._closed:
                raise InvalidArgument(f"the master of application {name_of(self._run)!r} is closed")
            number = self._next if shuffle is None else shuffle
            spec = ShuffleSpec(ShuffleId(self._run, number), partitions, maps, codec="none", content=self._content)
            spec = self._exchange.register_shuffle(spec)
            self._next = max(self._next, number + 1)
        return ShuffleHandle(MemoryShuffle.name, spec, self._exchange.endpoint)

    def map_outputs(self, handle: ShuffleHandle) -> list[MapOutput]:
        return self._exchange.map_outputs(handle.spec.id)

    def unregister_shuffle(self, handle: ShuffleHandle) -> None:
        self._exchange.unregister_shuffle(handle.spec.id)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._exchange.unregister_app(self._run)


class MemoryWriter(ShuffleWriter):
    """Gathers blocks, and hands them over at the commit."""

    def __init__(self, exchange: MemoryService, spec: ShuffleSpec, attempt: MapAttempt) -> None:
        spec.check_map(attempt.map)
        exchange.check_registered(spec.id)
        self._exchange = exchange
        self._spec = spec
        self._attempt = attempt
        self._blocks: list[MemoryBlock] = []
        self._gatherer: BatchGatherer | None = None
        self._committed: MapOutput | None = None
        self._aborted = False

    def write(self, partition: int, record: Buffer) -> None:
        if self._spec.content != "records":
            raise InvalidArgument(
                f"a shuffle of content {self._spec.content!r} has no records", remedy="use write_block()"
            )
        self.write_block(partition, frame(record), 1)

    def write_block(self, partition: int, payload: Buffer, records: int) -> None:
        """See `SupportsWriteBlock`."""
        self._check_open()
        self._spec.check_partition(partition)
        if records < 0:
            raise InvalidArgument(f"records {records} is negative", shuffle=self._spec.id, output=self._attempt)
        self._blocks.append(MemoryBlock(partition, bytes(payload), records))

    def write_batch(self, batch: Any, partitioner: Partitioner) -> None:
        """See `shuffle_api.columnar.SupportsWriteBatch`."""
        # Imported on demand, so that programs without Arrow data need no pyarrow.
        from shuffle_api.columnar.gather import BatchGatherer
        from shuffle_api.columnar.reading import check_arrow

        self._check_open()
        check_arrow(self._spec, "use write()")
        if self._gatherer is None:
            self._gatherer = BatchGatherer(
                self._spec, self._add_batch, block_bytes=BLOCK_BYTES, buffer_bytes=BUFFER_BYTES
            )
        self._gatherer.add(batch, partitioner)

    def _add_batch(self, partition: int, batch: Any) -> None:
        from shuffle_api.columnar.blocks import BlockCodec

        self.write_block(partition, BlockCodec(self._spec).encode(batch), batch.num_rows)

    def commit(self) -> MapOutput:
        if self._committed is None:
            self._check_open()
            if self._gatherer is not None:
                self._gatherer.flush()
            self._committed = self._exchange.commit(self._spec.id, self._attempt, self._blocks)
            self._blocks.clear()
        return self._committed

    def abort(self) -> None:
        self._aborted = self._committed is None
        self._blocks.clear()

    def _check_open(self) -> None:
        if self._committed or self._aborted:
            state = "committed" if self._committed else "aborted"
            raise InvalidArgument(f"the writer has {state}", shuffle=self._spec.id, output=self._attempt)


class MemoryReader(ShuffleReader):
    """Takes hold of the committed blocks when iteration begins: later changes to the shuffle do not matter."""

    def __init__(self, exchange: MemoryService, spec: ShuffleSpec, partitions: range, maps: range | None) -> None:
        self._maps = spec.check_ranges(partitions, maps)
        self._partitions = partitions
        self._exchange = exchange
        self._spec = spec
        self._closed = False

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        if self._spec.content != "records":
            raise InvalidArgument(
                f"a shuffle of content {self._spec.content!r} has no records", remedy="use read_blocks()"
            )
        for partition, _, payload, _ in self.read_blocks():
            for record in unpack_records(payload):
                self._check_open()
                yield partition, record

    def read_blocks(self) -> Iterator[tuple[int, MapAttempt, bytes, int]]:
        """See `SupportsReadBlocks`."""
        self._check_open()
        self._begin_reading(self._spec.id)
        for attempt, blocks in self._exchange.read(self._spec.id, self._partitions, self._maps):
            for partition, payload, records in blocks:
                self._check_open()
                yield partition, attempt, payload, records

    def read_batches(self) -> Iterator[tuple[int, Any]]:
        """See `shuffle_api.columnar.SupportsReadBatches`."""
        from shuffle_api.columnar.reading import batches_of

        return batches_of(self, self._spec)

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgument("the reader is closed", shuffle=self._spec.id)


T = TypeVar("T", MemoryMaster, MemoryWriter, MemoryReader)


def _close(each: MemoryMaster | MemoryWriter | MemoryReader) -> None:
    if isinstance(each, MemoryWriter):
        each.abort()
    else:
        each.close()
