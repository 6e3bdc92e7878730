"""Where the blocks of a push go that a worker keeps: into the file of an attempt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np

from shuffle_api.errors import CommitMismatch, InvalidArgument, QuotaExceeded, StorageFailed, StorageFull
from shuffle_api.values import MapOutput, Totals
from shuffle_server.store.attempt_writer import AttemptWriter
from shuffle_server.worker.worker import Worker
from shuffle_transport import messages
from shuffle_transport.blocks import BlockBatch, totals_of
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.resume import HeldBlocks


class AttemptSink:
    """The file of one attempt, written by one push: a stream, a request, or a client on this host."""

    def __init__(self, worker: Worker, command: pb.PutCommand, writer: AttemptWriter) -> None:
        self._worker, self._command, self._writer = worker, command, writer
        self._fencing_token = 0

    @property
    def held(self) -> int:
        return self._writer.totals.blocks

    @contextmanager
    def open(self, credit: object = None) -> Iterator[None]:
        self._fencing_token = self._writer.new_fencing_token(copy=self._command.copy)
        self._place = HeldBlocks(self.held).open(self._command.first_block)
        yield

    def append(self, batch: BlockBatch) -> int:
        """Write what is not held already; all of the payload is free then."""
        size = batch.payload.nbytes
        skip, self._place = self._place.receive(len(batch.rows))
        new = _without(batch, skip)
        if len(new.rows):
            check_partitions(new.rows, self._command.partitions)
            try:
                self._writer.append(self._fencing_token, new)
            except (StorageFull, StorageFailed, QuotaExceeded):
                self.abort()  # its space is needed, and this attempt will not commit
                raise
        discarded = size - new.payload.nbytes
        self._worker.instruments.traffic.pushed(len(new.rows), new.payload.nbytes, discarded=discarded)
        return size

    def finalize(self, rows: np.ndarray, end: pb.Totals) -> None:
        """Hold what a client on this host has written to the attempt's file: `rows`, dtype BLOCK_ROW."""
        held = totals_of(rows)
        self._check(messages.totals(end), held)
        self._fencing_token = self._writer.new_fencing_token()
        self._writer.finalize(self._fencing_token, rows)
        self._worker.instruments.traffic.adopted(held.blocks, held.bytes)

    def alive(self) -> None: ...

    def end(self, control: pb.PutControl) -> None:
        try:
            self._check(messages.totals(control.end), self._writer.totals)
        except CommitMismatch:
            self.abort()
            raise

    def abort(self) -> None:
        self._worker.abort(self._writer)

    def commit(self) -> pb.Committed:
        return messages.committed_message(
            self._worker.commit(self._writer, self._fencing_token, copy=self._command.copy)
        )

    def _check(self, stated: Totals, held: Totals) -> None:
        if stated != held:
            raise CommitMismatch(
                f"the sender states {_show(stated)}, the worker holds {_show(held)}",
                remedy="write this map again as a new attempt",
                shuffle=self._writer.shuffle,
                output=self._writer.output,
            )


class CommittedSink:
    """For a map that has been committed already: the sender comes to its end, and receives the winner."""

    def __init__(self, worker: Worker, command: pb.PutCommand, winner: MapOutput) -> None:
        self._worker, self._command, self._winner = worker, command, winner
        self.held = 0

    def open(self, credit: object = None) -> AbstractContextManager[None]:
        return nullcontext()

    def append(self, batch: BlockBatch) -> int:
        self._worker.instruments.traffic.pushed(0, 0, discarded=batch.payload.nbytes)
        return batch.payload.nbytes

    def finalize(self, rows: np.ndarray, end: pb.Totals) -> None: ...

    def alive(self) -> None: ...

    def end(self, control: pb.PutControl) -> None:
        self.held = control.end.blocks  # a stream that sends blocks without a commit need not send them again

    def abort(self) -> None: ...

    def commit(self) -> pb.Committed:
        own = self._winner.output == messages.map_attempt(self._command.output)
        self._worker.instruments.committed("repeated" if own else "superseded")
        return messages.committed_message(self._winner)


def attempt_sink(worker: Worker, command: pb.PutCommand) -> AttemptSink | CommittedSink:
    """Where the blocks of a push go. Raises as `Worker.open_attempt`."""
    target = worker.open_attempt(command)
    if isinstance(target, MapOutput):
        return CommittedSink(worker, command, target)
    return AttemptSink(worker, command, target)


def check_partitions(rows: np.ndarray, partitions: int) -> None:
    """Raises InvalidArgument for a block, of at least one (`rows`, dtype BLOCK_ROW), of no partition of the shuffle."""
    low, high = int(rows["partition"].min()), int(rows["partition"].max())
    if low < 0 or high >= partitions:
        raise InvalidArgument(
            f"partition {low if low < 0 else high} is out of range [0, {partitions})",
            remedy="write only partitions that exist",
        )


def _without(batch: BlockBatch, skip: int) -> BlockBatch:
    """The batch without its first `skip` blocks, which the worker holds."""
    if not skip:
        return batch
    return BlockBatch(batch.rows[skip:], batch.payload[int(np.sum(batch.rows["length"][:skip])) :])


def _show(totals: Totals) -> str:
    return f"{totals.blocks} blocks, {totals.bytes} bytes, {totals.records} records, digest {totals.digest:#010x}"
