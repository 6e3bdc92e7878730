"""One end of a channel: blocks and control messages both ways, within credit, each delivered once and in order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from shuffle_api.buffer import Buffer
from shuffle_api.errors import InvalidArgument, ShuffleError, StreamBroken
from shuffle_transport import messages
from shuffle_transport.checksum import BLOCK_ROW
from shuffle_transport.codecs import Codec
from shuffle_transport.exchange.inbox import Inbox
from shuffle_transport.exchange.keeper import Keeper
from shuffle_transport.exchange.outbox import Outbox
from shuffle_transport.exchange.received import Control, ReceivedBatch
from shuffle_transport.exchange.statistics import BlockChannelStatistics
from shuffle_transport.exchange.stream import Message, Stream
from shuffle_transport.exchange.wire import (
    INLINE_BYTES,
    MAX_MESSAGE,
    inline_batch,
    parse_inline,
    parse_record_batch,
    record_batch,
    sums_of,
)
from shuffle_transport.granter import Granter
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)

_LINGER = 2.0  # seconds for the other end to leave a channel that was cancelled


class BlockChannel:
    """One end of a channel; the same at both ends. Made by `ExchangeClient.open` and by the server's endpoint.

    Any number of threads may call. What one thread sends arrives in that order. A context manager: leaving it closes.

    :ivar name: what the client opened it as.
    :ivar peer: the address of the other end.
    :ivar metadata: what the client gave to `open`.
    """

    def __init__(
        self,
        name: str,
        peer: str,
        metadata: bytes,
        *,
        granter: Granter,
        codec: Codec,
        keeper: Keeper,
        timeout: float,
        resume: bool,
        silence: float,
        tell: Callable[[BlockChannel], None],
    ) -> None:
        self.name, self.peer, self.metadata, self.resume = name, peer, metadata, resume
        self.where = f"channel {name!r} with {peer}"
        self.heard = time.monotonic()
        self._outbox = Outbox(self.where, keeper, timeout, keep=resume)
        self._inbox = Inbox(self.where, granter, codec, self.consumed)
        self._codec, self._keeper, self._timeout, self._silence = codec, keeper, timeout, silence
        # How the thread that reads has state written: by another thread where it must not write itself.
        self._tell = tell
        self._error: ShuffleError | None = None
        self._over = threading.Event()
        self._stream: Stream | None = None
        self._silent = self._resumed = False
        self.on_close: Callable[[], None] | None = None

    # ------------------------------------------------------------------------------------------- the caller

    def send(self, rows: np.ndarray, payload: Buffer, timeout: float) -> None:
        """Send a batch of blocks, waiting for credit; one larger than the window waits until all is consumed.

        :param rows: the block table, dtype BLOCK_ROW, shape [n] with n > 0. `crc32c` is of each stored payload.
        :param payload: the payloads back to back. Not copied (unless it is small): leave it unchanged until the batch
            is received, and with `resume` until it is acknowledged, that is, for good.
        :param timeout: seconds to wait for credit and for the transport.
        :raises DeadlineExceeded: no credit in time (the batch is not sent), or the transport took nothing in time.
        :raises ShuffleError: why the channel is broken; StreamBroken unless the other end said more.
        :raises InvalidArgument: a malformed table, or sending after the end.
        """
        deadline = time.monotonic() + timeout
        if rows.dtype != BLOCK_ROW or rows.ndim != 1 or not len(rows):
            raise InvalidArgument(
                f"a block table of dtype {rows.dtype} and shape {rows.shape}",
                remedy="send at least one row of dtype BLOCK_ROW",
            )
        rows = np.ascontiguousarray(rows)
        size = memoryview(payload).nbytes
        sums = sums_of(rows, size)
        if size + rows.nbytes <= INLINE_BYTES:
            message: Message = (None, inline_batch(rows, payload))
        else:
            message = (record_batch(rows, payload), None)
        self._outbox.gate.acquire(sums.cost, timeout)
        self._outbox.put(message, deadline, sums)

    def send_control(self, message: bytes, timeout: float) -> None:
        """Send a message of the application's, in its place among the blocks; it needs no credit.

        :raises InvalidArgument: longer than 1 MiB, or sending after the end.
        :raises DeadlineExceeded, ShuffleError: as `send`.
        """
        if len(message) > MAX_MESSAGE:
            raise InvalidArgument(
                f"a control message of {len(message)} bytes", remedy=f"send at most {MAX_MESSAGE}, or blocks"
            )
        control = pb.ExchangeControl(message=message).SerializeToString()
        self._outbox.put((None, control), time.monotonic() + timeout)

    def receive(self, timeout: float) -> ReceivedBatch | Control | None:
        """The next batch or control message; None when the other end has sent its end and all of it was received.

        None is an answer only after the totals agreed; a stream that merely stops raises. What was received holds
        credit until `consumed` or its `release`.

        :raises DeadlineExceeded: nothing came in time; the channel goes on.
        :raises ShuffleError: why the channel is broken; StreamBroken unless the other end said more.
        """
        item = self._inbox.take(timeout)
        if item is not None:
            self._granted(self._inbox.taken(item))
        return item

    def consumed(self, n_bytes: int) -> None:
        """So many payload bytes of what was received are no longer held: gives their credit back.

        :raises InvalidArgument: so many are not held.
        """
        self._granted(self._inbox.consumed(n_bytes))

    def half_close(self, timeout: float) -> None:
        """Send the end, with the totals of what was sent; receiving goes on. Raises what `send` raises."""
        self._outbox.end(time.monotonic() + timeout)
        self._finish()

    def cancel(self, reason: str) -> None:
        """End both directions at once, and tell the other end why; both get StreamBroken. Idempotent."""
        self.abandon(StreamBroken(f"cancelled: {reason}"))

    def statistics(self) -> BlockChannelStatistics:
        """Counts, credit and delays of this end."""
        out, into = self._outbox, self._inbox
        gate, window = out.gate.statistics(), into.granter.statistics()
        return BlockChannelStatistics(
            credit_granted=gate.granted,
            credit_available=gate.available,
            backlog=gate.backlog,
            bytes_in_flight=max(0, gate.window - gate.available),
            stall_seconds=gate.stall_seconds,
            oldest_wait_seconds=gate.oldest_wait_seconds,
            blocks_sent=out.totals.blocks,
            bytes_sent=out.totals.bytes,
            raw_bytes_sent=out.totals.raw_bytes,
            messages_sent=out.items,
            messages_unacknowledged=out.kept,
            granted=window.granted,
            granted_available=window.granted - window.received,
            held=window.held,
            announced_backlog=window.backlog,
            queue_age_seconds=into.age,
            blocks_received=into.totals.blocks,
            bytes_received=into.totals.bytes,
            raw_bytes_received=into.totals.raw_bytes,
            messages_received=into.items,
        )

    def close(self) -> None:
        """Leave: as it should be when both ends have ended, else with a cancel. Frees memory. Idempotent."""
        if not self._outbox.ended and self._inbox.ended and not self.over:
            try:
                self.half_close(self._timeout)
            except ShuffleError:
                pass  # nobody asks any more
        self.abandon(StreamBroken("closed before its end"))
        self._inbox.close()
        self._outbox.gate.close()
        if self.on_close is not None:
            self.on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------------------- who owns the channel

    def attach(self, stream: Stream, *, resumed: bool = False) -> None:
        """Use `stream` from now on; the caller goes on to `run` it.

        :param resumed: it is not the channel's first.
        :raises ShuffleError: it broke already.
        """
        self._silent, self.heard, self._resumed = False, time.monotonic(), resumed
        self._stream = stream
        self._outbox.attach(stream, self._state() if resumed else None)

    def run(self, stream: Stream) -> ShuffleError | None:
        """Read `stream` to its end, on the thread that calls. Returns why it ended, None when the channel is over."""
        resender = threading.Thread(target=self._catch_up, args=(stream,), name=f"exchange-resend-{self.name}")
        try:
            while (message := stream.read()) is not None:
                self.heard = time.monotonic()
                if self._error is not None:
                    continue  # the other end is to come to what was said last
                self._dispatch(*message)
                if self._resumed and resender.ident is None:
                    resender.start()  # the first message on a new stream says what the other end holds
            reason: ShuffleError = StreamBroken("the stream stopped before the end message")
        except ShuffleError as error:
            reason = error
        finally:
            self._stream = None
            self._keeper.end(stream)
            self._outbox.detach(stream)
            if resender.ident is not None:
                resender.join()
        if self._inbox.ended and self._outbox.ended:
            self._over.set()  # the client leaves when it has everything
        if self._silent:
            reason = StreamBroken(f"the other end has been silent for {self._silence:g} s")
        return None if self.over else reason

    def abandon(self, error: ShuffleError) -> None:
        """End both directions with `error`, and tell the other end."""
        if not self.over:
            self._outbox.state(pb.ExchangeControl(error=messages.error_message(error)))
            self.fail(error)

    def retire(self, error: ShuffleError | None) -> None:
        """The handler has returned, or ended with `error`: say so, and free the memory."""
        if error is None and not self._outbox.ended:
            try:
                self.half_close(self._timeout)
            except ShuffleError as broken:
                error = broken
        if error is not None:
            self.abandon(error)
        self._inbox.close()

    def fail(self, error: ShuffleError) -> None:
        """Whoever uses this end, now or later, gets `error` (the first one); the stream, if any, ends soon."""
        if self.over:
            return
        error.message = f"{self.where}: {error.message}"
        self._error = error
        self._over.set()
        self._outbox.fail(error)
        self._inbox.fail(error)
        stream = self._stream
        if stream is not None:
            self._keeper.begin(stream, time.monotonic() + _LINGER, stream.abort)
            self._outbox.half_close()

    @property
    def over(self) -> bool:
        """Both ends have said all they had to say, or the channel has failed."""
        return self._over.is_set()

    def tell(self) -> None:
        """Write what this end has granted and holds."""
        self._outbox.state(self._state())

    def check(self, now: float) -> float:
        """The keeper's: is the other end alive? When to ask again."""
        stream = self._stream
        if self._silence and stream is not None and now - self.heard > self._silence:
            self._silent = True
            stream.abort()
        return now + (self._silence or 60.0) / 4

    def ping(self, silence: float) -> None:
        """Say something, and ask the other end to, if nothing was said for half of `silence` seconds."""
        if time.monotonic() - self._outbox.active >= silence / 2:
            self._outbox.state(pb.ExchangeControl(ping=True))

    # ------------------------------------------------------------------------------------------------------

    def _dispatch(self, batch: pa.RecordBatch | None, metadata: pa.Buffer | None) -> None:
        try:
            if batch is not None:
                if self._inbox.put_batch(*parse_record_batch(batch)) is not None:
                    self._tell(self)
            elif metadata is not None:
                self._control(messages.parse(pb.ExchangeControl, metadata.to_pybytes()))
        except ShuffleError as refusal:
            self.abandon(refusal)

    def _control(self, control: pb.ExchangeControl) -> None:
        inbox, due = self._inbox, control.ping
        if control.rows:
            due |= inbox.put_batch(*parse_inline(control)) is not None
        elif control.HasField("message"):
            inbox.put_control(control.message)
        elif control.HasField("end"):
            inbox.put_end(messages.totals(control.end))
            due |= self.resume
        if control.granted:
            self._outbox.gate.granted(control.granted)
        if control.held:
            self._outbox.acknowledged(control.held)
        if control.HasField("backlog"):
            due |= inbox.announced(control.backlog) is not None
        if control.HasField("first"):
            inbox.begin(control.first)
        if due:
            self._tell(self)
        if control.HasField("error"):
            self.fail(messages.typed_error(control.error))
        self._finish()

    def _granted(self, grant: int | None) -> None:
        if grant is not None:
            self.tell()

    def _state(self) -> pb.ExchangeControl:
        return pb.ExchangeControl(granted=self._inbox.granter.granted, held=self._inbox.held if self.resume else 0)

    def _finish(self) -> None:
        if self._inbox.ended and self._outbox.settled and not self.over:
            self._over.set()
            self._outbox.half_close()

    def _catch_up(self, stream: Stream) -> None:
        try:
            self._outbox.catch_up(stream, self._state)
        except ShuffleError as error:
            log.debug("%s: sending again: %s", self.where, error)
