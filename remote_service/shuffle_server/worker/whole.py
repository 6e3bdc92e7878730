"""A small map output in one request: the action `put` (docs/protocol.md).

What a stream says in several messages, its sender waiting in between, is said at once; the rules are those of a push,
save that there is no credit: its payload is here already.
"""

from __future__ import annotations

from shuffle_api.errors import InvalidArgument, ShuffleError
from shuffle_api.ids import name_of
from shuffle_api.values import MapOutput
from shuffle_server.observe.log_context import add_log_fields
from shuffle_server.worker.handover import HandOver
from shuffle_server.worker.ingest import PutOptions, check_stated, name_winner, take
from shuffle_server.worker.worker import Worker
from shuffle_transport import messages
from shuffle_transport.blocks import BlockBatch, parse_table
from shuffle_transport.credits import INITIAL_CREDIT
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.resume import HeldBlocks
from shuffle_transport.security import Principal
from shuffle_transport.shares import Owner

ACTION = "put"


class WholePuts:
    """One worker's answers to `put`. Thread-safe.

    :param hand_over: who tells clients that see the worker's files where their outputs lie; None: nobody.
    """

    def __init__(self, worker: Worker, options: PutOptions, hand_over: HandOver | None) -> None:
        self._worker, self._overload_timeout, self._hand_over = worker, options.overload_timeout, hand_over

    def put(self, body: bytes, principal: Principal) -> pb.Committed:
        """Take an output and commit it; the attempt that won its map. Raises a typed error when it is refused."""
        request = messages.parse(pb.WholePut, body)
        command = request.command
        principal.check(command.shuffle.app)
        add_log_fields(
            app=command.shuffle.app,
            shuffle=command.shuffle.shuffle,
            map=command.output.map,
            attempt=command.output.attempt,
        )
        with self._worker.instruments.push() as push:
            try:
                committed = self._put(request)
            except ShuffleError:
                push.refused()
                raise
            push.completed()
        if request.nonce and self._hand_over is not None:
            committed.path = self._hand_over.path(request.nonce, command.shuffle, committed)
        return committed

    def _put(self, request: pb.WholePut) -> pb.Committed:
        worker, command, batch = self._worker, request.command, _batch(request)
        staged = worker.open_attempt(command)
        if isinstance(staged, MapOutput):
            worker.instruments.traffic.pushed(0, 0, discarded=batch.payload.nbytes)
            return name_winner(worker, command, staged)
        owner = Owner(name_of(command.shuffle.app))
        with worker.pool.reserve(batch.payload.nbytes, self._overload_timeout, owner):
            turn = staged.take_turn()
            take(worker, command, staged, turn, HeldBlocks(staged.totals.blocks), batch)
        check_stated(worker, staged, messages.totals(request.end))
        return messages.committed_message(worker.commit(staged, turn))


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
