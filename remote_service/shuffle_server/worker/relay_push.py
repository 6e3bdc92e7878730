"""The writer's end of a relay: one push stream, whose credit comes back when its blocks were read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from shuffle_api.errors import InvalidArgument, ShuffleError, StreamBroken
from shuffle_api.ids import name_of
from shuffle_server.worker.ingest import PutOptions, put_messages
from shuffle_server.worker.relay_state import RelayedShuffle
from shuffle_server.worker.relay_values import RelayWriter
from shuffle_server.worker.worker import Worker
from shuffle_transport import messages
from shuffle_transport.granter import Granter
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.shares import Owner

TICK_SECONDS = 0.5  # how often who waits looks whether its peer is still there
KEEPALIVE_SECONDS = 5.0


class RelayPush:
    """Runs one push. The stream's own thread reads it; what is granted is said by the threads of the readers."""

    def __init__(
        self,
        worker: Worker,
        command: pb.PutCommand,
        options: PutOptions,
        reply: Callable[[pb.PutReply], None],
        cancelled: Callable[[], bool],
    ) -> None:
        self._worker, self._command, self._options = worker, command, options
        self._reply, self._cancelled = reply, cancelled
        # Guards the reply stream and the granter, which must not be used once `run` has returned.
        self._talking = threading.Lock()
        self._granter: Granter | None = None

    def run(self, shuffle: RelayedShuffle, chunks: Iterable[Any]) -> None:
        """Take in the stream's messages. Raises a typed error when the push is refused; replies all else itself."""
        output = messages.map_attempt(self._command.output)
        owner = Owner(name_of(self._command.shuffle.app))
        seconds, most = self._options.overload_timeout, self._options.window
        with Granter(self._worker.pool, seconds, maximum=most, owner=owner) as granter:
            self._granter = granter
            why = "broke off"
            writer = shuffle.open_writer(output, self, shuffle.clock())
            try:
                self._take(shuffle, writer, granter, chunks)
            except ShuffleError as error:
                why = f"was refused ({error.message})"
                raise
            finally:
                shuffle.leave_writer(writer, why, shuffle.clock())
                with self._talking:
                    self._granter = None

    def consumed(self, size: int) -> None:
        """See `Sender`."""
        with self._talking:
            granted = None if self._granter is None else self._granter.consumed(size)
            if granted is not None:
                self._tell(pb.PutReply(granted=granted))

    def failed(self, error: ShuffleError) -> None:
        """See `Sender`. What was reserved is free now, though the stream's thread may wait for its peer."""
        with self._talking:
            granter, self._granter = self._granter, None
            if granter is not None:
                granter.close()
                self._tell(pb.PutReply(error=messages.error_message(error)))

    def _take(self, shuffle: RelayedShuffle, writer: RelayWriter, granter: Granter, chunks: Iterable[Any]) -> None:
        for control, batch in put_messages(self._worker, chunks):
            if batch is None:
                shuffle.hear(writer, shuffle.clock())
            else:
                size = batch.payload.nbytes
                with self._talking:
                    # None: it has failed, as `put` is about to say.
                    granted = None if self._granter is None else granter.received(size, control.backlog or None)
                    if granted is not None:
                        self._tell(pb.PutReply(granted=granted))
                shuffle.put(writer, batch, shuffle.clock())
                self._worker.instruments.traffic.pushed(len(batch.rows), size)
            if control.abort:
                shuffle.leave_writer(writer, "gave up", shuffle.clock())
                with self._talking:
                    self._tell(pb.PutReply())
                return
            if control.HasField("end"):
                self._end(shuffle, writer, granter, control)
                return
        raise InvalidArgument("the relayed push ended without its end message", remedy="end it with one")

    def _end(self, shuffle: RelayedShuffle, writer: RelayWriter, granter: Granter, control: pb.PutControl) -> None:
        """Answer when all of it has been read, and say meanwhile that it is not forgotten."""
        stated = messages.totals(control.end)
        shuffle.end_writer(writer, stated, {part.partition: messages.totals(part.totals) for part in control.ends})
        spoken = shuffle.clock()
        while not shuffle.wait_read(writer, TICK_SECONDS):
            now = shuffle.clock()
            if self._cancelled():
                raise StreamBroken("it was cancelled before all its blocks were read")
            shuffle.watch(now)
            if now - spoken > KEEPALIVE_SECONDS:
                spoken = now
                with self._talking:
                    self._tell(pb.PutReply(granted=granter.granted))
        committed = pb.Committed(
            output=self._command.output, worker=self._worker.info.id, totals=messages.totals_message(stated)
        )
        with self._talking:
            self._tell(pb.PutReply(committed=committed))

    def _tell(self, reply: pb.PutReply) -> None:
        try:
            self._reply(reply)
        except (pa.ArrowException, OSError):
            pass  # the stream broke: its own thread finds out, the reader that called must not
