"""One push, from its command to its last reply: credit, blocks, the statement at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

from shuffle_api.errors import CommitMismatch, InvalidArgument, QuotaExceeded, ShuttingDown, StorageFailed, StorageFull
from shuffle_api.ids import name_of
from shuffle_api.values import MapOutput, Totals
from shuffle_server.observe.stalls import CreditStalls
from shuffle_server.store.staged import StagedOutput
from shuffle_server.worker.worker import Worker
from shuffle_transport import messages
from shuffle_transport.blocks import PUT_SCHEMA, BlockBatch, parse_batch
from shuffle_transport.granter import Granter
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.resume import HeldBlocks
from shuffle_transport.shares import Owner

Said = tuple[pb.PutControl, BlockBatch | None]  # one message of a push: what it says, and its blocks

_MESSAGE_COST = 1024  # bytes that a message counts for at least while a refused stream is read to its end


@dataclass(frozen=True, slots=True)
class PutOptions:
    """Bounds of one push stream: most payload bytes under way, and seconds to wait for memory."""

    window: int
    overload_timeout: float


class Ingest:
    """Runs one push. Blocking: the thread of the Flight call writes each batch before it asks for the next."""

    def __init__(
        self, worker: Worker, command: pb.PutCommand, options: PutOptions, reply: Callable[[pb.PutReply], None]
    ) -> None:
        self._worker, self._command, self._options, self._reply = worker, command, options, reply
        self._traffic = worker.instruments.traffic
        self._stalls = CreditStalls(self._traffic)

    def run(self, said: Iterable[Said]) -> None:
        """Take in what the sender says. Raises a typed error when the push is refused; replies all else itself."""
        target = self._worker.open_attempt(self._command)
        # Reserved before anything is read: what a sender may send has its place.
        owner = Owner(name_of(self._command.shuffle.app))
        seconds, most = self._options.overload_timeout, self._options.window
        with Granter(self._worker.pool, seconds, maximum=most, owner=owner) as granter:
            if isinstance(target, MapOutput):
                self._drain(said, granter, target)
                return
            turn = target.take_turn(copy=self._command.copy)
            control = self._take(said, granter, target, turn)
        # Its memory is given back: the commit may wait for a copy at another worker, whose commits wait for this one.
        if control is not None:
            self._end(target, turn, control, granter.granted)

    def _drain(self, said: Iterable[Said], granter: Granter, winner: MapOutput) -> None:
        """The map has been committed: let the sender come to its end, then name the winner."""
        for control, batch in said:
            if batch is not None:
                self._grant(granter.received(batch.payload.nbytes, control.backlog or None), 0)
                self._grant(granter.consumed(batch.payload.nbytes), 0)
                self._traffic.pushed(0, 0, discarded=batch.payload.nbytes)
            if control.HasField("end") or control.abort:
                # A stream that only hands over blocks (no commit yet) is told that all of them are held.
                committed = name_winner(self._worker, self._command, winner) if control.commit else None
                self._reply(pb.PutReply(granted=granter.granted, blocks_held=control.end.blocks, committed=committed))
                return
        raise _unfinished()

    def _take(self, said: Iterable[Said], granter: Granter, staged: StagedOutput, turn: int) -> pb.PutControl | None:
        """Append what comes; the sender's statement at the end, None when it has aborted."""
        place = HeldBlocks(staged.totals.blocks).open(self._command.first_block)
        for control, batch in said:
            if batch is not None:
                size = batch.payload.nbytes
                self._stalls.arrived(size, granter.outlook.available)
                self._grant(granter.received(size, control.backlog or None), staged.totals.blocks)
                place = take(self._worker, self._command, staged, turn, place, batch)
                self._grant(granter.consumed(size), staged.totals.blocks)
            if control.abort:
                self._worker.abort(staged)
                self._reply(pb.PutReply())
                return None
            if control.HasField("end"):
                return control
        raise _unfinished()

    def _end(self, staged: StagedOutput, turn: int, control: pb.PutControl, granted: int) -> None:
        check_stated(self._worker, staged, messages.totals(control.end))
        held = staged.totals.blocks
        committed = None
        if control.commit:
            committed = messages.committed_message(self._worker.commit(staged, turn, copy=self._command.copy))
        self._reply(pb.PutReply(granted=granted, blocks_held=held, committed=committed))

    def _grant(self, granted: int | None, held: int) -> None:
        if granted is not None:
            self._stalls.granted()
            self._reply(pb.PutReply(granted=granted, blocks_held=held))


# What it takes is the same when it comes in one request (`whole.py`).


def take(
    worker: Worker, command: pb.PutCommand, staged: StagedOutput, turn: int, place: HeldBlocks, batch: BlockBatch
) -> HeldBlocks:
    """Append a batch, save what is held already; the place behind it. Raises a typed error when it is refused."""
    skip, place = place.receive(len(batch.rows))
    kept = _without(batch, skip)
    if len(kept.rows):
        check_partitions(kept.rows, command.partitions)
        try:
            staged.append(turn, kept)
        except (StorageFull, StorageFailed, QuotaExceeded):
            worker.abort(staged)  # its space is needed, and this attempt will not commit
            raise
    worker.instruments.traffic.pushed(
        len(kept.rows), kept.payload.nbytes, discarded=batch.payload.nbytes - kept.payload.nbytes
    )
    return place


def check_stated(worker: Worker, staged: StagedOutput, stated: Totals) -> None:
    """The sender has come to its end. Raises CommitMismatch when it has sent something else than it says."""
    if stated != staged.totals:
        worker.abort(staged)
        raise CommitMismatch(
            f"the sender states {_show(stated)}, the worker holds {_show(staged.totals)}",
            remedy="write this map again as a new attempt",
            shuffle=staged.shuffle,
            output=staged.output,
        )


def name_winner(worker: Worker, command: pb.PutCommand, winner: MapOutput) -> pb.Committed:
    """The answer to a commit of a map that has been committed already."""
    own = winner.output == messages.map_attempt(command.output)
    worker.instruments.committed("repeated" if own else "superseded")
    return messages.committed_message(winner)


def put_messages(worker: Worker, chunks: Iterable[Any]) -> Iterator[Said]:
    """Each message's control part and its blocks, None when it has none. Raises InvalidArgument, ShuttingDown."""
    for chunk in _decoded(chunks):
        if worker.stopping:
            raise ShuttingDown(f"worker {worker.info.id} is stopping")
        has_blocks = chunk.data is not None and chunk.data.num_rows
        yield _control(chunk), parse_batch(chunk.data, PUT_SCHEMA) if has_blocks else None


def drain(chunks: Iterable[Any], most: int) -> None:
    """After a refusal: read on until the sender has heard of it, but no more than an honest one can have under way.

    `most` bytes are that, its window, and the message that goes beyond. Raises what a broken stream raises.
    """
    try:
        for chunk in chunks:
            if most < 0:
                return
            # The buffers' sizes, as they are: nothing has checked what is in them.
            most -= 0 if chunk.data is None else chunk.data.get_total_buffer_size()
            most -= _MESSAGE_COST + (0 if chunk.app_metadata is None else chunk.app_metadata.size)
    except fl.FlightError:
        raise
    except (pa.ArrowException, OSError, InvalidArgument):
        return  # neither is the rest of what it sends of any use


def _decoded(chunks: Iterable[Any]) -> Iterator[Any]:
    """The messages; what Arrow cannot decode is a malformed request like others. Broken streams stay Flight errors."""
    try:
        yield from chunks
    except fl.FlightError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise InvalidArgument(
            f"a message that is no Arrow record batch: {error}", remedy="send valid Arrow IPC messages"
        ) from None


def _control(chunk: Any) -> pb.PutControl:
    if chunk.app_metadata is None or not chunk.app_metadata.size:
        return pb.PutControl()
    return messages.parse(pb.PutControl, chunk.app_metadata.to_pybytes())


def check_partitions(rows: np.ndarray, partitions: int) -> None:
    """Raises InvalidArgument for a block, of at least one (`rows`, dtype BLOCK_ROW), of no partition of the shuffle."""
    low, high = int(rows["partition"].min()), int(rows["partition"].max())
    if low < 0 or high >= partitions:
        raise InvalidArgument(
            f"a block of partition {low if low < 0 else high} of a shuffle with {partitions}",
            remedy="write only partitions that exist",
        )


def _without(batch: BlockBatch, skip: int) -> BlockBatch:
    """The batch without its first `skip` blocks, which the worker holds from an earlier stream."""
    if not skip:
        return batch
    return BlockBatch(batch.rows[skip:], batch.payload[int(np.sum(batch.rows["length"][:skip])) :])


def _show(totals: Totals) -> str:
    return f"{totals.blocks} blocks, {totals.bytes} bytes, {totals.records} records, digest {totals.digest:#010x}"


def _unfinished() -> InvalidArgument:
    return InvalidArgument(
        "the push ended without its end message", remedy="end it with one; the worker keeps what it holds for a while"
    )
