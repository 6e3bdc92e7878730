"""What one end of a channel has received and nobody has taken yet: a queue that the credit bounds.

One thread reads the stream and puts, whatever the consumer does, so that nothing stays unread below and no channel
holds up another. Batches in the queue are paid for with credit; of control messages the account limits the sum.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from shuffle_api.buffer import Buffer
from shuffle_api.errors import BlockCorrupt, InvalidArgument, ShuffleError, StreamBroken
from shuffle_api.values import Totals
from shuffle_transport.blocks import BlockBatch
from shuffle_transport.channels.credit_account import CreditAccount
from shuffle_transport.channels.wire import BatchMeta, RunningTotals, check_table
from shuffle_transport.checksum import BLOCK_ROW, crc32c
from shuffle_transport.codecs import Codec
from shuffle_transport.resume import HeldBlocks


@dataclass(frozen=True, slots=True)
class Control:
    """A message that the other end sent with `send_control`, in its place among the blocks."""

    message: bytes


class ReceivedBatch:
    """The blocks of one `send`: their table, and a view of what arrived; nothing is decompressed or verified yet.

    :ivar payload: the blocks' bytes back to back, as they were stored.
    :ivar meta: how many blocks and bytes there are.
    """

    __slots__ = ("_codec", "_give_back", "_rows", "meta", "payload")

    def __init__(self, payload: memoryview, meta: BatchMeta, codec: Codec, give_back: Callable[[int], None]) -> None:
        self.payload, self.meta = payload, meta
        self._codec, self._give_back = codec, give_back
        self._rows: np.ndarray | None = None

    @property
    def rows(self) -> np.ndarray:
        """The block table, dtype BLOCK_ROW, shape [n].

        :raises InvalidArgument: it is malformed, or contradicts the payload. (Looked at here, or at the next hundredth
            batch or the end, whatever is first: then the channel fails.)
        """
        if self._rows is None:
            check_table(self.meta.table, self.meta.size)
            self._rows = np.frombuffer(self.meta.table, BLOCK_ROW)
        return self._rows

    def payloads(self) -> Iterator[memoryview]:
        """Views of the single payloads, in order, as they were stored. Raises as `rows`."""
        return BlockBatch(self.rows, self.payload).payloads()

    def raw(self) -> Iterator[Buffer]:
        """The blocks in order, each checked against its checksum and decompressed when its turn comes.

        :raises BlockCorrupt: a block is not what its sender had.
        :raises InvalidArgument: as `rows`.
        """
        for row, payload in zip(self.rows.tolist(), self.payloads(), strict=True):
            partition, checksum, length, raw_length, _ = row
            if crc32c(payload) != checksum:
                raise BlockCorrupt(
                    f"a block of partition {partition} ({length} bytes) does not match its checksum {checksum:#010x}",
                    remedy="open the channel again and send it again",
                )
            yield self._codec.decompress(payload, raw_length)

    def release(self) -> None:
        """Give its credit back, once: as `consumed(len(payload))` on the channel."""
        self._give_back(len(self.payload))


class _WakeUp:
    """Wakes those who wait: the end has come, or an error."""


_WAKE_UP = _WakeUp()


Found = tuple[ReceivedBatch | Control | None, int | None]
"""An item, None after the last; and a grant to send, if one is due."""


class ChannelReceiver:
    """The receiving half of one end of a channel. One thread puts, any number take; each item is taken by one.

    :param where: channel and peer, for errors.
    :param account: this direction's credit; closed by `close`.
    :param give_back: what a batch's `release` calls, with its payload bytes.
    :param resume: items may come twice.
    """

    def __init__(
        self, where: str, account: CreditAccount, codec: Codec, give_back: Callable[[int], None], *, resume: bool
    ) -> None:
        self.account, self.running_totals, self.items = account, RunningTotals(checked=False), 0
        self.ended = False
        self._where, self._codec, self._give_back = where, codec, give_back
        self._queue: queue.SimpleQueue[ReceivedBatch | Control | _WakeUp] = queue.SimpleQueue()
        self._arrivals: deque[float] = deque()
        self._place = HeldBlocks() if resume else None
        self._error: ShuffleError | None = None

    @property
    def held(self) -> int:
        """Items received so far."""
        return self._place.held if self._place is not None else self.items

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
        if self._place is not None:
            self._place = self._place.open(first)

    def put_batch(self, payload: memoryview, meta: BatchMeta) -> int | None:
        """A batch has arrived. Returns a grant to send, if one is due.

        :raises InvalidArgument: the sender overspent its credit, sends after its end, or has sent a malformed table.
        :raises StreamBroken: nobody will take it.
        """
        if (self._place is not None or self.ended) and self._is_here():
            return None
        grant = self.account.arrived(meta.cost)
        self.running_totals.add(meta)
        self._append(ReceivedBatch(payload, meta, self._codec, self._give_back))
        return grant

    def put_control(self, message: bytes) -> None:
        """A control message has arrived. Raises as `put_batch`, and Overloaded when too many wait."""
        if not self._is_here():
            self.account.control(len(message))
            self._append(Control(message))

    def put_end(self, totals: Totals) -> None:
        """The end has arrived, with the totals of what was sent.

        :raises StreamBroken: something else was received.
        :raises InvalidArgument: one of the tables was malformed.
        """
        if self._is_here():
            return
        self.running_totals.check()
        if totals != self.running_totals.totals:
            raise StreamBroken(f"the sender says it sent {totals}, received were {self.running_totals.totals}")
        self.ended = True
        self._queue.put(_WAKE_UP)

    def fail(self, error: ShuffleError) -> None:
        """Who receives now or later gets `error`, unless the end has arrived: then nothing is missing."""
        if not self.ended:
            self._error = self._error or error
            self._queue.put(_WAKE_UP)

    # ---------------------------------------------------------------------------------------- the consumer

    def ready(self) -> bool:
        """`take` would not wait."""
        return not self._queue.empty() or self._error is not None

    def take(self, timeout: float) -> Found | None:
        """What comes next; None if nothing comes within `timeout` seconds.

        :raises ShuffleError: why the channel is broken.
        """
        if self._error is not None:
            raise self._error.with_traceback(None)
        if timeout <= 0 and self._queue.empty():
            return None  # without raising and catching
        try:
            found = self._queue.get(timeout=timeout) if timeout > 0 else self._queue.get_nowait()
        except queue.Empty:
            return None
        if isinstance(found, ReceivedBatch):
            self._arrivals.popleft()
            return found, self.account.took(found.meta.size, found.meta.cost)
        if isinstance(found, Control):
            self._arrivals.popleft()
            self.account.took_control(len(found.message))
            return found, None
        self._queue.put(found)  # for the next call, and for who else waits
        if self._error is not None:
            raise self._error.with_traceback(None)
        return None, None

    def close(self) -> int | None:
        """Nobody will take any more: frees the memory and its reservation. Returns a grant to send, if one is due.
        Idempotent.

        Who takes all the same gets StreamBroken, after the end too if items before it were dropped here.
        """
        grant = self.account.close()
        closed = StreamBroken(f"{self._where}: this end is closed")
        if self._arrivals:
            self._error = self._error or closed
        self.fail(closed)
        while not self._queue.empty():
            self._queue.get()
        self._queue.put(_WAKE_UP)
        return grant

    # ------------------------------------------------------------------------------------------------------

    def _is_here(self) -> bool:
        """Count an item; whether it was here already."""
        if self._place is not None:
            skip, self._place = self._place.receive(1)
            if skip:
                return True
        if self.ended:
            raise InvalidArgument("an item after the end", remedy="the end is the last item")
        return False

    def _append(self, item: ReceivedBatch | Control) -> None:
        self.items += 1
        self._arrivals.append(time.monotonic())
        self._queue.put(item)
