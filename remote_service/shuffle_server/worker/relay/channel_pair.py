"""Two streams that are one: messages read from one half are written to the other."""

from __future__ import annotations

import threading
import time

import pyarrow as pa

from shuffle_api.errors import InvalidArgument, ShuffleError, StreamBroken
from shuffle_transport.channels.sender import error_control
from shuffle_transport.channels.server import read_to_end
from shuffle_transport.channels.stream import Message, Stream
from shuffle_transport.channels.timer_thread import TimerThread
from shuffle_transport.channels.wire import EXCHANGE_SCHEMA
from shuffle_transport.pool import Reservation

CHANNEL_BYTES = 1 << 20
"""What a channel reserves: room for a message of each direction, as the plugin `pipelined` sends them."""

LEAVE_WITHIN = 15.0
"""Seconds for an end to leave whose other end has left."""


class RelayContext:
    """What all pumps share: deadlines, counts, and whether this worker is about to leave.

    :param timeout: seconds for the end of a pump to take one message.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout, self.timers = timeout, TimerThread("channel-relay-timers")
        self.closing = False
        self._lock = threading.Lock()
        self.messages = self.bytes = self.in_hand = 0

    def took(self, n_bytes: int) -> None:
        with self._lock:
            self.in_hand += n_bytes

    def passed(self, n_bytes: int) -> None:
        with self._lock:
            self.in_hand -= n_bytes
            self.messages += 1
            self.bytes += n_bytes


class ChannelPair:
    """The memory of one channel's two pumps.

    :param reservation: of CHANNEL_BYTES; grows for as long as larger messages are here. Closed when both are over.
    """

    def __init__(self, reservation: Reservation, relay_context: RelayContext) -> None:
        self._reservation, self._relay_context = reservation, relay_context
        self._lock = threading.Lock()
        self._in_hand, self._pumps = 0, 2
        reservation.idle = True

    def take(self, n_bytes: int) -> None:
        """So many bytes more are in hand."""
        self._relay_context.took(n_bytes)
        with self._lock:
            self._in_hand += n_bytes
            self._reservation.idle = False
            self._reservation.cover(self._in_hand)

    def passed(self, n_bytes: int) -> None:
        """So many bytes have left memory."""
        self._relay_context.passed(n_bytes)
        with self._lock:
            self._in_hand -= n_bytes
            self._reservation.idle = not self._in_hand
            if self._reservation.size > CHANNEL_BYTES:
                self._reservation.try_resize(max(CHANNEL_BYTES, self._in_hand))

    def over(self, pumps: int = 1) -> None:
        """So many pumps have ended."""
        with self._lock:
            self._pumps -= pumps
            if not self._pumps:
                self._reservation.close()


class Pump:
    """One of two joined streams, with the thread that reads it.

    :ivar other: where what is read goes; set before `run`.
    :ivar peer: the address of the end.
    """

    other: Pump

    def __init__(self, stream: Stream, pair: ChannelPair, relay_context: RelayContext) -> None:
        self._stream, self._pair, self._relay_context = stream, pair, relay_context
        self.peer = stream.peer
        self._writing = threading.Lock()
        self._open = True

    def run(self) -> None:
        """Pass messages on until this stream has ended; then notify the other end, and stop writing here.

        When the other end has stopped taking, further messages are dropped: its own thread notifies this end.
        """
        what, refused = "the other end has left", False
        try:
            while (message := self._stream.read()) is not None:
                self._pass_on(message)
        except InvalidArgument as refusal:
            what, refused = f"the other end broke the rules: {refusal.message}", True
            self.write((None, error_control(refusal).SerializeToString()))
        except ShuffleError as broken:
            what = f"the other end is gone: {broken.message}"
        finally:
            with self._writing:
                self._open = False
            self._relay_context.timers.end(self)
            if not self._relay_context.closing:  # else both find their streams broken, and come back
                self.other.leave(StreamBroken(what))
            self._pair.over()
        if refused:
            read_to_end(self._stream, self._relay_context.timers, time.monotonic() + LEAVE_WITHIN)

    def write(self, message: Message) -> None:
        """Waits as long as the end of this half takes nothing; never raises."""
        with self._writing:
            if not self._open:
                return
            key = object()
            self._relay_context.timers.begin(key, time.monotonic() + self._relay_context.timeout, self._stream.abort)
            try:
                self._stream.write(message)
            except ShuffleError:
                self._open = False  # the reading thread of this stream finds it broken, and notifies the other end
            finally:
                self._relay_context.timers.end(key)

    def leave(self, error: StreamBroken) -> None:
        """The other half has ended: say so, which means nothing to an end that is over as well, and have it end."""
        self.write((None, error_control(error).SerializeToString()))
        with self._writing:
            if self._open:
                self._relay_context.timers.begin(self, time.monotonic() + LEAVE_WITHIN, self._stream.abort)

    def _pass_on(self, message: Message) -> None:
        batch, metadata = message
        if batch is not None:
            _check(batch)
        size = len(metadata or b"") if batch is None else batch.get_total_buffer_size()
        self._pair.take(size)
        try:
            self.other.write(message)
        finally:
            self._pair.passed(size)


def _check(batch: pa.RecordBatch) -> None:
    """Whether it can be written again: that looks into its offsets, which nobody has compared with its buffers yet.

    :raises InvalidArgument: it can't.
    """
    if not batch.schema.equals(EXCHANGE_SCHEMA, check_metadata=False):
        raise InvalidArgument("an exchange batch of other columns", remedy="see docs/protocol.md, Channels")
    try:
        batch.validate()
    except pa.ArrowException as error:
        raise InvalidArgument(f"malformed exchange batch: {error}", remedy="send valid Arrow record batches") from None
