"""One end of a channel: blocks and control messages both ways, within credit, each delivered once and in order."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np

from shuffle_api.buffer import Buffer
from shuffle_api.errors import InvalidArgument, ShuffleError, StreamBroken
from shuffle_transport.channels.receiver import Control, ReceivedBatch
from shuffle_transport.channels.session import LEAD_FROM, Session
from shuffle_transport.channels.statistics import BlockChannelStatistics
from shuffle_transport.channels.stream import Message
from shuffle_transport.channels.wire import (
    INLINE_BYTES,
    MAX_MESSAGE,
    SHORT_TABLE,
    BatchMeta,
    batch_meta,
    check_table,
    inline_batch,
    record_batch,
)
from shuffle_transport.checksum import BLOCK_ROW
from shuffle_transport.codecs import NoneCodec
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import ANYBODY, Principal


class BlockChannel:
    """One end of a channel; the same at both ends. Made by `ExchangeClient.open` and by the server's endpoint.

    Any number of threads may call. What one thread sends arrives in that order. A context manager: leaving it closes.

    :ivar name: what the client opened it as.
    :ivar peer: the address of the other end.
    :ivar principal: whom the client acts for, at a server that wants tokens; else, and at the client, anybody.
    :param closing: called by `close`, last.
    """

    def __init__(
        self,
        name: str,
        peer: str,
        session: Session,
        timeout: float,
        closing: Callable[[], None],
        principal: Principal = ANYBODY,
    ) -> None:
        self.name, self.peer, self.principal = name, peer, principal
        self._session, self._receiver, self._sender = session, session.receiver, session.sender
        self._timeout, self._closing = timeout, closing
        self._compresses = not isinstance(session.codec, NoneCodec)

    def send(self, rows: np.ndarray, payload: Buffer, timeout: float, *, credit_timeout: float | None = None) -> None:
        """Send a batch of blocks, waiting for credit; one larger than the window waits until all is consumed.

        A batch that has to wait is compressed with the channel's codec meanwhile.

        :param rows: the block table, dtype BLOCK_ROW, shape [n] with n > 0. `crc32c` is of each stored payload.
        :param payload: the payloads back to back. Not copied (unless it is small): leave it unchanged until the batch
            is received, and with `resume` until it is acknowledged, that is, for good.
        :param timeout: seconds to wait for credit and for the transport. (A wait for credit may be up to 2 s longer if
            it is 10 s or more and the other end does not answer; then the stream is broken.)
        :param credit_timeout: seconds to wait for credit, if that is less: to look at something else in between.
        :raises DeadlineExceeded: no credit in time (the batch is not sent), or the transport took nothing in time.
        :raises ShuffleError: why the channel is broken; StreamBroken unless the other end said more.
        :raises InvalidArgument: a malformed table, or sending after the end.
        """
        deadline = time.monotonic() + timeout
        patience = timeout if credit_timeout is None else min(timeout, credit_timeout)
        if rows.dtype != BLOCK_ROW or rows.ndim != 1 or not len(rows):
            raise InvalidArgument(
                f"a block table of dtype {rows.dtype} and shape {rows.shape}",
                remedy="send at least one row of dtype BLOCK_ROW",
            )
        meta, message = _message(rows, payload)
        gate = self._sender.gate
        if not gate.try_acquire(meta.cost):
            smaller = self._session.threads.compressor.compress(self._session.codec, rows, payload)
            if smaller[0] is not rows:
                meta, message = _message(*smaller)
            self._session.acquire(meta.cost, min(patience, deadline - time.monotonic()))
        self._sender.put(message, deadline, meta)
        # If what has no credit would be compressed, or its sender could not read for itself.
        if (self._compresses or patience < LEAD_FROM) and gate.low:
            self._session.read_ahead()

    def send_control(self, message: bytes, timeout: float) -> None:
        """Send a message of the application's, in its place among the blocks; it needs no credit.

        :raises InvalidArgument: longer than 1 MiB, or sending after the end.
        :raises DeadlineExceeded, ShuffleError: as `send`.
        """
        if len(message) > MAX_MESSAGE:
            raise InvalidArgument(
                f"a control message of {len(message)} bytes", remedy=f"send at most {MAX_MESSAGE}, or blocks"
            )
        self._sender.put((None, pb.ExchangeControl(message=message).SerializeToString()), time.monotonic() + timeout)

    def receive(self, timeout: float) -> ReceivedBatch | Control | None:
        """The next batch or control message; None when the other end has sent its end and all of it was received.

        None is an answer only after the totals agreed; a stream that merely stops raises. What was received holds
        credit until `consumed` or its `release`.

        :raises DeadlineExceeded: nothing came in time; the channel goes on. (The wait may be up to 2 s longer than
            `timeout` if that is 10 s or more and the other end does not answer; then the stream is broken.)
        :raises ShuffleError: why the channel is broken; StreamBroken unless the other end said more.
        """
        item, grant = self._session.receive(timeout)
        if grant is not None:
            self._sender.tell()
        return item

    @property
    def ready(self) -> bool:
        """`receive` would return at once, or raise why the channel is broken. Does not look at the stream itself."""
        return self._receiver.ready()

    def consumed(self, n_bytes: int) -> None:
        """So many received payload bytes have left memory: gives their credit back.

        :raises InvalidArgument: so many are not held.
        """
        self._session.consumed(n_bytes)

    def limit_window(self, n_bytes: int) -> None:
        """Grant at most so much from now on (1 MiB at least): less is on its way, and batches arrive fresher."""
        self._session.account.limit(n_bytes)

    def half_close(self, timeout: float) -> None:
        """Send the end, with the totals of what was sent; receiving goes on. Raises what `send` raises."""
        self._sender.end(time.monotonic() + timeout)
        self._session.finish()

    def cancel(self, reason: str) -> None:
        """End both directions at once, and send the other end the reason; both get StreamBroken. Idempotent."""
        self._session.abandon(StreamBroken(f"cancelled: {reason}"))

    def close(self) -> None:
        """Leave: as it should be when both ends have ended, else with a cancel. Frees memory. Idempotent."""
        if self._receiver.ended and not self._sender.ended and not self._session.over:
            try:
                self.half_close(self._timeout)
            except ShuffleError:
                pass  # nobody asks any more
        if not (self._receiver.ended and self._sender.ended):
            self.cancel("closed before the end")
        self._session.leave()
        self._session.close()
        self._closing()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def statistics(self) -> BlockChannelStatistics:
        """Counts, credit and delays of this end."""
        out, into = self._sender, self._receiver
        gate, window = out.gate.statistics(), into.account.statistics()
        sent, received = out.running_totals.totals, into.running_totals.totals
        return BlockChannelStatistics(
            credit_granted=gate.granted,
            credit_available=gate.available,
            backlog=gate.backlog,
            bytes_in_flight=max(0, gate.window - gate.available),
            stall_seconds=gate.stall_seconds,
            oldest_wait_seconds=gate.oldest_wait_seconds,
            blocks_sent=sent.blocks,
            bytes_sent=sent.bytes,
            raw_bytes_sent=sent.raw_bytes,
            messages_sent=out.items,
            messages_unacknowledged=out.kept,
            granted=window.granted,
            granted_available=window.granted - window.received,
            held=window.held,
            announced_backlog=window.backlog,
            queue_age_seconds=into.age,
            blocks_received=received.blocks,
            bytes_received=received.bytes,
            raw_bytes_received=received.raw_bytes,
            messages_received=into.items,
        )


def _message(rows: np.ndarray, payload: Buffer) -> tuple[BatchMeta, Message]:
    size = memoryview(payload).nbytes
    # To copy a short table costs less than to make a view of it.
    short = rows.nbytes <= SHORT_TABLE
    table: bytes | memoryview = rows.tobytes() if short else np.ascontiguousarray(rows).data.cast("B")
    meta = batch_meta(table, size)
    check_table(table, size)
    if size + rows.nbytes <= INLINE_BYTES:
        return meta, (None, inline_batch(meta, payload))
    return meta, (record_batch(rows["length"], table, payload), None)
