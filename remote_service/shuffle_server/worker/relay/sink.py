"""Where the blocks of a push go that a worker relays: to the readers, whose progress returns the sender's credit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shuffle_api.errors import ShuffleError, StreamBroken
from shuffle_server.worker.push_handler import Credit
from shuffle_server.worker.relay.streaming_shuffle import StreamingShuffle
from shuffle_server.worker.relay.values import KEEPALIVE_SECONDS, TICK_SECONDS
from shuffle_server.worker.worker import Worker
from shuffle_transport import messages
from shuffle_transport.blocks import BlockBatch
from shuffle_transport.proto import flight_shuffle_pb2 as pb


class RelaySink:
    """One writer of a relayed shuffle. Its blocks are in memory until they are read.

    :param cancelled: whether the sender has gone.
    """

    held = 0  # an attempt that breaks off begins anew

    def __init__(
        self, worker: Worker, command: pb.PutCommand, shuffle: StreamingShuffle, cancelled: Callable[[], bool]
    ) -> None:
        self._worker, self._command, self._shuffle, self._cancelled = worker, command, shuffle, cancelled

    @contextmanager
    def open(self, credit: Credit) -> Iterator[None]:
        self._credit = credit
        output = messages.map_attempt(self._command.output)
        self._writer = self._shuffle.open_writer(output, credit, self._shuffle.clock())
        why = "broke off"
        try:
            yield
        except ShuffleError as error:
            why = f"was refused ({error.message})"
            raise
        finally:
            self._shuffle.leave_writer(self._writer, why, self._shuffle.clock())

    def append(self, batch: BlockBatch) -> int:
        self._shuffle.put(self._writer, batch, self._shuffle.clock())
        self._worker.instruments.traffic.pushed(len(batch.rows), batch.payload.nbytes)
        return 0

    def alive(self) -> None:
        self._shuffle.hear(self._writer, self._shuffle.clock())

    def end(self, control: pb.PutControl) -> None:
        """Wait until all of it has been read; the sender is shown meanwhile that the stream is alive."""
        shuffle, parts = self._shuffle, {part.partition: messages.totals(part.totals) for part in control.ends}
        self._totals = control.end
        shuffle.end_writer(self._writer, messages.totals(control.end), parts)
        sent = shuffle.clock()
        while not shuffle.wait_read(self._writer, TICK_SECONDS):
            now = shuffle.clock()
            if self._cancelled():
                raise StreamBroken("it was cancelled before all its blocks were read")
            shuffle.watch(now)
            if now - sent > KEEPALIVE_SECONDS:
                sent = now
                self._credit.repeat()

    def abort(self) -> None:
        self._shuffle.leave_writer(self._writer, "gave up", self._shuffle.clock())

    def commit(self) -> pb.Committed:
        return pb.Committed(output=self._command.output, worker=self._worker.info.id, totals=self._totals)
