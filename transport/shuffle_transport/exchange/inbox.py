"""What one end of a channel has received and nobody has taken yet: a queue that the credit bounds.

One thread reads the stream and puts, whatever the consumer does, so that nothing stays unread below and no channel
holds up another. Data in the queue is paid for with credit; control messages are not, so their sum is limited.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable

from shuffle_api.errors import DeadlineExceeded, InvalidArgument, Overloaded, ShuffleError, StreamBroken
from shuffle_api.values import Totals
from shuffle_transport.blocks import BlockBatch
from shuffle_transport.checksum import BLOCK_ROW
from shuffle_transport.codecs import Codec
from shuffle_transport.exchange.received import Control, ReceivedBatch
from shuffle_transport.exchange.wire import MESSAGE_COST, Sums
from shuffle_transport.granter import Granter
from shuffle_transport.resume import HeldBlocks

MAX_CONTROLS = 4 << 20
"""Bytes of control messages that may wait, each counted as MESSAGE_COST more than it has."""

_RETURN_FROM = 64 << 10  # credit of messages (not of payload) that is given back by itself, not with a consumption


class _Mark:
    """Wakes those who wait: the end has come, or an error."""


_MARK = _Mark()


class Inbox:
    """The receiving half of one end of a channel. One thread puts, any number take; each item is taken by one.

    :param where: channel and peer, for errors.
    :param granter: this direction's window; closed by `close`.
    :param give_back: what a batch's `release` calls, with its payload bytes.
    """

    def __init__(self, where: str, granter: Granter, codec: Codec, give_back: Callable[[int], None]) -> None:
        self.granter, self.totals, self.items = granter, Totals(), 0
        self._where, self._codec, self._give_back = where, codec, give_back
        self._queue: queue.SimpleQueue[ReceivedBatch | Control | _Mark] = queue.SimpleQueue()
        self._arrivals: deque[float] = deque()
        self._place = HeldBlocks()
        self._error: ShuffleError | None = None
        self.ended = False
        self._lock = threading.Lock()  # of the rest
        self._controls = 0  # bytes of control messages in the queue
        self._owed = 0  # credit of messages that were taken
        self._closed = False

    @property
    def held(self) -> int:
        """Items received so far."""
        return self._place.held

    @property
    def age(self) -> float:
        """Seconds for which the oldest item has waited to be taken."""
        try:
            return time.monotonic() - self._arrivals[0]
        except IndexError:
            return 0.0

    # ------------------------------------------------------------------------------ the thread that reads

    def begin(self, first: int) -> None:
        """The next item on the stream has this number.

        :raises InvalidArgument: items before it are missing.
        """
        self._place = self._place.open(first)

    def put_batch(self, blocks: BlockBatch, sums: Sums) -> int | None:
        """A batch has arrived. Returns a grant to send, if one is due.

        :raises InvalidArgument: the sender overspent its credit, or sends after its end.
        :raises StreamBroken: nobody will take it.
        """
        if self._skip():
            return None
        with self._lock:
            self._check_open()
            grant = self.granter.received(sums.cost)
        self.totals = sums.added_to(self.totals)
        self._append(ReceivedBatch(blocks.rows, blocks.payload, (), codec=self._codec, give_back=self._give_back))
        return grant

    def put_control(self, message: bytes) -> None:
        """A control message has arrived. Raises as `put_batch`, and Overloaded when too many wait."""
        if self._skip():
            return
        with self._lock:
            self._check_open()
            self._controls += len(message) + MESSAGE_COST
            if self._controls > MAX_CONTROLS:
                raise Overloaded(
                    f"{self._where}: control messages of {self._controls} bytes wait to be received",
                    remedy="receive faster, or send fewer: control messages wait for no credit",
                )
        self._append(Control(message))

    def put_end(self, totals: Totals) -> None:
        """The end has arrived, with the totals of what was sent.

        :raises StreamBroken: something else was received.
        """
        if self._skip():
            return
        if totals != self.totals:
            raise StreamBroken(f"{self._where}: the sender says it sent {totals}, received were {self.totals}")
        self.ended = True
        self._queue.put(_MARK)

    def announced(self, backlog: int) -> int | None:
        """The sender waits with so many bytes of credit, or with none. Returns a grant to send, if one is due."""
        with self._lock:
            return None if self._closed else self.granter.received(0, backlog)

    def fail(self, error: ShuffleError) -> None:
        """Who receives now or later gets `error`, unless the end has arrived: then nothing is missing."""
        if not self.ended:
            self._error = self._error or error
            self._queue.put(_MARK)

    # ---------------------------------------------------------------------------------------- the consumer

    def take(self, timeout: float) -> ReceivedBatch | Control | None:
        """The next item; None after the last. See BlockChannel.receive."""
        if self._error is not None:
            raise self._error
        try:
            item = self._queue.get(timeout=max(0.0, timeout))
        except queue.Empty:
            raise DeadlineExceeded(f"{self._where}: nothing came within {timeout:g} s") from None
        if isinstance(item, _Mark):
            self._queue.put(item)  # for the next call, and for who else waits
            if self._error is not None:
                raise self._error
            return None
        self._arrivals.popleft()
        return item

    def taken(self, item: ReceivedBatch | Control) -> int | None:
        """Account for an item that `take` returned. Returns a grant to send, if one is due."""
        with self._lock:
            if isinstance(item, Control):
                self._controls -= len(item.message) + MESSAGE_COST
                return None
            self._owed += MESSAGE_COST + BLOCK_ROW.itemsize * len(item.rows)
            if self._closed or (len(item.payload) and self._owed < _RETURN_FROM):
                return None  # with the payload's own credit, when that is consumed
            return self.granter.consumed(self._settle(0))

    def consumed(self, n: int) -> int | None:
        """`n` bytes of payload are no longer held. Returns a grant to send, if one is due.

        :raises InvalidArgument: so many are not held.
        """
        with self._lock:
            return None if self._closed else self.granter.consumed(self._settle(n))

    def close(self) -> None:
        """Nobody will take any more: frees the memory and its reservation. Idempotent."""
        with self._lock:
            self._closed = True
            self.granter.close()
        if self._error is None and not self.ended:
            self._error = StreamBroken(f"{self._where}: this end is closed")
        self._queue.put(_MARK)
        while not self._queue.empty():  # the mark of those who wait is put back below
            self._queue.get()
        self._queue.put(_MARK)

    # ------------------------------------------------------------------------------------------------------

    def _settle(self, n: int) -> int:
        owed, self._owed = self._owed, 0
        return n + owed

    def _skip(self) -> bool:
        """Count an item; whether it is here already."""
        if self.ended:
            raise InvalidArgument(f"{self._where}: an item after the end", remedy="the end is the last item")
        skip, self._place = self._place.receive(1)
        return skip > 0

    def _check_open(self) -> None:
        if self._closed:
            raise StreamBroken(
                f"{self._where}: nobody receives any more", remedy="the handler has returned: see its log"
            )

    def _append(self, item: ReceivedBatch | Control) -> None:
        self.items += 1
        self._arrivals.append(time.monotonic())
        self._queue.put(item)
