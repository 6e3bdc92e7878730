"""The writer of the `remote` plugin: records gather per partition, full buffers become blocks, blocks are pushed."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, TypeAlias

from shuffle_api.buffer import Buffer
from shuffle_api.columnar.gather import BatchGatherer
from shuffle_api.columnar.ipc import encode
from shuffle_api.columnar.partitioners import Partitioner
from shuffle_api.columnar.reading import check_arrow, check_records
from shuffle_api.errors import InvalidArgument, ServerUnreachable, ShuffleError, ShuttingDown, StreamBroken
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import ShuffleWriter
from shuffle_api.records import LENGTH, frame
from shuffle_api.values import MapOutput, ShuffleSpec, Totals
from shuffle_plugins.remote.connection import Connection
from shuffle_plugins.remote.options import RemoteOptions
from shuffle_transport import messages
from shuffle_transport.blocks import Block, add_rows, table_rows
from shuffle_transport.checksum import crc32c
from shuffle_transport.codecs import get_codec
from shuffle_transport.flight_client import PushTarget

Tap: TypeAlias = Callable[[int, memoryview, int, bool], None]
"""Told of each block as it is made: partition, bytes before compression, records, and whether the bytes are the
caller's, who may change them later. In the order in which readers get the blocks of a partition."""


class _Gathering:
    """The records of one partition that are not in a block yet."""

    __slots__ = ("data", "records")

    def __init__(self) -> None:
        self.data = bytearray()
        self.records = 0


class RemoteWriter(ShuffleWriter):
    """One attempt of one map, written to one worker.

    Memory: `buffer_bytes` of gathered records and `push_bytes` of finished blocks, each exceeded by one record at most.
    Blocks that were sent stay in memory until the worker says that it holds them, so a broken connection costs
    nothing: the same blocks are sent again, and the worker skips those it has.

    :param tap: see `Tap`; must not wait.
    """

    def __init__(
        self,
        spec: ShuffleSpec,
        attempt: MapAttempt,
        connection: Connection,
        options: RemoteOptions,
        tap: Tap | None = None,
    ) -> None:
        self._spec, self._connection, self._options, self._tap = spec, connection, options, tap
        self._codec = get_codec(spec.codec)
        self._target = PushTarget(spec.id, attempt, spec.partitions, self._codec.name)
        self._gathering: dict[int, _Gathering] = {}
        self._gathered = 0
        self._batches: BatchGatherer | None = None
        self._push_batches = True
        self._blocks: list[Block] = []  # finished, not yet held by the worker
        self._block_bytes = 0
        self._held = Totals()
        self._worker: str | None = None
        self._avoid: list[str] = []  # workers that could not be reached
        self._result: MapOutput | None = None
        self._open = True

    def write(self, partition: int, record: Buffer) -> None:
        self._check(partition)
        check_records(self._spec, "write_batch() or write_block()")
        framed = frame(record)
        gathering = self._gathering.get(partition)
        if gathering is None:
            gathering = self._gathering[partition] = _Gathering()
        gathering.data += framed
        gathering.records += 1
        self._gathered += len(framed)
        if len(gathering.data) >= self._options.block_bytes:
            self._finish(partition)
        elif self._gathered >= self._options.buffer_bytes:
            self._finish_all()

    def write_block(self, partition: int, payload: Buffer, records: int) -> None:
        """Append records that are framed already (`shuffle_api.records`), after those written before.

        In a shuffle of other content the payload is what that is made of: for `arrow` an IPC stream of one batch.
        """
        self._check(partition)
        data = memoryview(payload).cast("B")
        framed = self._spec.content == "records"
        if records < 0 or (framed and data.nbytes < records * LENGTH.size):
            raise InvalidArgument(
                f"{records} records in a block of {data.nbytes} bytes",
                remedy="frame them with shuffle_api.records.pack_records",
            )
        if partition in self._gathering:
            self._finish(partition)
        self._add(partition, data, records, copy=True)

    def write_batch(self, batch: Any, partitioner: Partitioner) -> None:
        """See `shuffle_api.columnar.SupportsWriteBatch`."""
        self._check_open()
        if self._batches is None:
            check_arrow(self._spec, "use write()")
            options = self._options
            self._batches = BatchGatherer(
                self._spec, self._add_batch, block_bytes=options.block_bytes, buffer_bytes=options.buffer_bytes
            )
        self._batches.add(batch, partitioner)

    def finish_blocks(self, partitions: Container[int]) -> bool:
        """Make blocks of what has gathered for these partitions (of batches: for all). Sends nothing, does not wait.

        Returns whether nothing is left that is in no block.
        """
        for partition in [partition for partition in self._gathering if partition in partitions]:
            self._finish(partition, push=False)
        if self._batches is not None:
            self._push_batches = False
            try:
                self._batches.flush()
            finally:
                self._push_batches = True
        return not self._gathering

    def commit(self) -> MapOutput:
        if self._result is None:
            if not self._open:
                raise InvalidArgument("the writer has aborted", remedy="write the map again as a new attempt")
            if self._batches is not None:
                self._batches.flush()
            self._finish_all(push=False)
            winner = self._push(commit=True)
            if winner is None:
                raise StreamBroken(f"worker {self._worker} did not answer the commit")
            self._result, self._open = winner, False
        return self._result

    def abort(self) -> None:
        if not self._open:
            return
        self._open = False
        self._gathering.clear()
        self._batches = None
        self._blocks.clear()
        if self._worker is not None:
            try:
                self._connection.data(self._worker).abort(self._target)
            except ShuffleError:
                pass  # the worker drops attempts that nobody writes to; what matters is that this one never commits

    def _check(self, partition: int) -> None:
        self._check_open()
        self._spec.check_partition(partition)

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidArgument("the writer has committed or aborted", remedy="write the map again as a new attempt")

    def _finish_all(self, push: bool = True) -> None:
        for partition in sorted(self._gathering):
            self._finish(partition, push)

    def _finish(self, partition: int, push: bool = True) -> None:
        gathering = self._gathering.pop(partition)
        self._gathered -= len(gathering.data)
        self._add(partition, memoryview(gathering.data), gathering.records, push)

    def _add_batch(self, partition: int, batch: Any) -> None:
        self._add(partition, memoryview(encode(batch)), batch.num_rows, self._push_batches)

    def _add(self, partition: int, raw: memoryview, records: int, push: bool = True, *, copy: bool = False) -> None:
        """Make a block of `raw`; with `copy` that is somebody else's, who may change it later."""
        if self._tap is not None:
            self._tap(partition, raw, records, copy)
        payload: Buffer | None = self._codec.compress(raw)
        if payload is None:
            payload = bytes(raw) if copy else raw
        self._blocks.append(Block(partition, crc32c(payload), raw.nbytes, records, payload))
        self._block_bytes += memoryview(payload).nbytes
        if push and self._block_bytes >= self._options.push_bytes:
            self._push(commit=False)

    def _push(self, commit: bool) -> MapOutput | None:
        """Send the finished blocks; they are the worker's when this returns. With `commit`, the winner of the map."""
        end = add_rows(self._held, table_rows(self._blocks))

        def push() -> MapOutput | None:
            if self._worker is None:
                self._worker = self._connection.place(self._target.shuffle, self._avoid)
            try:
                client = self._connection.data(self._worker)
                reply = client.push(self._target, self._blocks, first_block=self._held.blocks, end=end, commit=commit)
            except (ServerUnreachable, ShuttingDown):
                if not self._held.blocks:
                    # Nothing that could not be sent elsewhere. Should it have committed there, this is a copy of it.
                    self._avoid.append(self._worker)
                    self._worker = None
                raise
            if not reply.HasField("committed"):
                return None
            done = reply.committed
            return MapOutput(messages.map_attempt(done.output), done.worker, messages.totals(done.totals))

        winner = self._connection.retrying(push)
        self._held = end
        self._blocks = []
        self._block_bytes = 0
        return winner
