"""Push: the blocks of a map output come in, as a stream with credit or in one request (docs/protocol.md).

One loop serves every way in. Where the blocks go is a `BlockSink`: the file of an attempt, or nowhere when the map has
been committed already (attempt_sink.py); the readers of a relayed shuffle (relay/relay.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Protocol, Self

import pyarrow as pa

from shuffle_api.errors import InvalidArgument, ShuffleError
from shuffle_api.ids import name_of
from shuffle_server.observe.log_context import add_log_fields
from shuffle_server.observe.traffic import CreditStalls
from shuffle_server.worker.attempt_sink import attempt_sink
from shuffle_server.worker.incoming import PushMessage
from shuffle_server.worker.local_file_handler import LocalFileHandler
from shuffle_server.worker.worker import Worker
from shuffle_transport import messages
from shuffle_transport.blocks import BlockBatch, parse_table
from shuffle_transport.credits import INITIAL_CREDIT
from shuffle_transport.granter import Granter
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Principal
from shuffle_transport.shares import Owner

INLINE_ACTION = "put"

Reply = Callable[[pb.PutReply], None]


@dataclass(frozen=True, slots=True)
class PutOptions:
    """Bounds of one push stream: most payload bytes under way, and seconds to wait for memory."""

    window: int
    overload_timeout: float


class Credit:
    """The credit of one push stream: grants go to the sender with a reply. Thread-safe.

    Relayed blocks are consumed by the threads of their readers. After `failed`, and after the push, nothing is sent.
    """

    def __init__(self, granter: Granter, stalls: CreditStalls, held: Callable[[], int], reply: Reply) -> None:
        self._granter: Granter | None = granter
        self._stalls, self._held, self._reply = stalls, held, reply
        self._lock = threading.Lock()  # guards the reply stream, and the granter, which is not used after the push

    def received(self, size: int, backlog: int) -> None:
        """A batch of `size` payload bytes came; `backlog`: bytes that its sender has ready, 0 if it does not say.

        :raises InvalidArgument: the sender had less credit.
        """
        with self._lock:
            if self._granter is not None:
                self._stalls.arrived(size, self._granter.outlook.available)
                self._grant(self._granter.received(size, backlog or None))

    def consumed(self, size: int) -> None:
        """So many payload bytes have left memory."""
        with self._lock:
            if self._granter is not None:
                self._grant(self._granter.consumed(size))

    def failed(self, error: ShuffleError) -> None:
        """The push is over, though its thread may wait for the sender: its reservation is free from now on."""
        with self._lock:
            granter, self._granter = self._granter, None
            if granter is not None:
                granter.close()
                self._send(pb.PutReply(error=messages.error_message(error)))

    def repeat(self) -> None:
        """Send what is granted once more: the sender takes a stream without replies for broken."""
        with self._lock:
            if self._granter is not None:
                self._send(pb.PutReply(granted=self._granter.granted))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._granter = None

    def _grant(self, granted: int | None) -> None:
        if granted is not None:
            self._stalls.granted()
            self._send(pb.PutReply(granted=granted, blocks_held=self._held()))

    def _send(self, reply: pb.PutReply) -> None:
        with suppress(pa.ArrowException, OSError):  # a stream that broke is found by the thread that reads it
            self._reply(reply)


class BlockSink(Protocol):
    """Where the blocks of one push go. One thread calls its methods, in this order."""

    @property
    def held(self) -> int:
        """So many blocks, the first ones, need not be sent again."""
        ...

    def open(self, credit: Credit) -> AbstractContextManager[None]:
        """From its entry to its exit blocks come."""
        ...

    def append(self, batch: BlockBatch) -> int:
        """Take a batch. How much of its payload has left memory: the sink returns the rest by `Credit.consumed`."""
        ...

    def alive(self) -> None:
        """The sender has sent a message without blocks."""
        ...

    def end(self, control: pb.PutControl) -> None:
        """All blocks have come. Returns when none of them is in memory.

        :raises CommitMismatch: they are not those that the sender states.
        """
        ...

    def abort(self) -> None:
        """The sender gives the attempt up."""
        ...

    def commit(self) -> pb.Committed:
        """Make the output visible. The attempt that has won its map."""
        ...


class PushHandler:
    """The pushes of one worker. Thread-safe.

    :param local_files: for clients that see the worker's files.
    """

    def __init__(self, worker: Worker, options: PutOptions, local_files: LocalFileHandler | None) -> None:
        self._worker, self._options, self._local_files = worker, options, local_files

    def attempt(self, command: pb.PutCommand, pushed: Iterable[PushMessage], reply: Reply) -> None:
        """A stream to the file of an attempt; otherwise as `stream`."""
        self.stream(command, attempt_sink(self._worker, command), pushed, reply)

    def stream(self, command: pb.PutCommand, sink: BlockSink, pushed: Iterable[PushMessage], reply: Reply) -> None:
        """Run a push stream to its last reply. Each batch is in the sink before the next message is read.

        :raises ShuffleError: it is refused.
        """
        owner, stalls = Owner(name_of(command.shuffle.app)), CreditStalls(self._worker.instruments.traffic)
        # Reserved before anything is read: there is room for all that the sender may send.
        with (
            Granter(
                self._worker.pool, self._options.overload_timeout, maximum=self._options.window, owner=owner
            ) as granter,
            Credit(granter, stalls, lambda: sink.held, reply) as credit,
            sink.open(credit),
        ):
            control = _take(sink, credit, pushed)
            if control.abort:
                sink.abort()
            else:
                sink.end(control)
        # The memory is given back: a commit may wait for a copy at another worker, whose commits wait for this one.
        if control.abort:
            reply(pb.PutReply())
        else:
            committed = sink.commit() if control.commit else None
            reply(pb.PutReply(granted=granter.granted, blocks_held=sink.held, committed=committed))

    def inline(self, body: bytes, principal: Principal) -> pb.Committed:
        """A whole output in one request: its payload is here already, so there is no credit.

        :param body: an encoded `WholePut`.
        :return: the attempt that has won its map.
        :raises ShuffleError: it is refused.
        """
        request = messages.parse(pb.WholePut, body)
        command = request.command
        principal.check(command.shuffle.app)
        note_push(command)
        with self._worker.instruments.push() as push:
            try:
                committed = self._inline(request)
            except ShuffleError:
                push.refused()
                raise
            push.completed()
        if request.nonce and self._local_files is not None:
            committed.path = self._local_files.path(request.nonce, command.shuffle, committed)
        return committed

    def _inline(self, request: pb.WholePut) -> pb.Committed:
        batch, sink = _batch(request), attempt_sink(self._worker, request.command)
        owner = Owner(name_of(request.command.shuffle.app))
        with self._worker.pool.reserve(batch.payload.nbytes, self._options.overload_timeout, owner), sink.open():
            sink.append(batch)
            sink.end(pb.PutControl(end=request.end))
        return sink.commit()


def note_push(command: pb.PutCommand) -> None:
    """Fields of the log about a push."""
    shuffle, output = command.shuffle, command.output
    add_log_fields(app=shuffle.app, shuffle=shuffle.shuffle, map=output.map, attempt=output.attempt)


def _take(sink: BlockSink, credit: Credit, pushed: Iterable[PushMessage]) -> pb.PutControl:
    """All blocks; the message with which the sender ends, or gives up. Raises InvalidArgument when neither comes."""
    for control, batch in pushed:
        if batch is None:
            sink.alive()
        else:
            credit.received(batch.payload.nbytes, control.backlog)
            if freed := sink.append(batch):
                credit.consumed(freed)
        if control.abort or control.HasField("end"):
            return control
    raise InvalidArgument(
        "the push ended without its end message", remedy="end it with one; the worker keeps what it holds for a while"
    )


def _batch(request: pb.WholePut) -> BlockBatch:
    """The blocks of a request. Raises InvalidArgument when it cannot be what it says."""
    command = request.command
    if command.relay or command.copy or command.first_block:
        raise InvalidArgument(
            "a relayed output, a copy or the rest of an attempt in one request", remedy="use DoPut for it"
        )
    size = len(request.payload)
    if size > INITIAL_CREDIT:
        raise InvalidArgument(
            f"{size} payload bytes in one request", remedy=f"push more than {INITIAL_CREDIT} bytes with DoPut"
        )
    rows = parse_table(request.table, INITIAL_CREDIT)
    if int(rows["length"].sum()) != size:
        raise InvalidArgument(
            f"{size} payload bytes with a table of {int(rows['length'].sum())}", remedy="send each block's payload"
        )
    return BlockBatch(rows, memoryview(request.payload))
