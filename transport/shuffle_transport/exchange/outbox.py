"""What one end of a channel sends: in order, within its credit, and kept for as long as it may have to be sent again.

*Items* (batches, control messages, the end) are numbered, by :class:`~shuffle_transport.resume.SentBlocks`. *State*
(grants, acknowledgements, announcements) is not: only the latest counts, so it is never kept, and a new stream begins
with it. Credit belongs to the channel, not to a stream: what is sent again has been paid for.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shuffle_api.errors import DeadlineExceeded, InvalidArgument, ShuffleError, StreamBroken
from shuffle_api.values import Totals
from shuffle_transport import messages
from shuffle_transport.exchange.keeper import Keeper
from shuffle_transport.exchange.stream import Message, Stream
from shuffle_transport.exchange.wire import Sums
from shuffle_transport.gate import CreditGate
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.resume import SentBlocks

_REASON_WAIT = 1.0  # seconds in which the thread that reads says why a stream broke


class Outbox:
    """The sending half of one end of a channel. Any number of threads may call.

    :param where: channel and peer, for errors.
    :param keeper: aborts the stream when a write takes too long.
    :param timeout: seconds that writing state may take.
    :param keep: keep items until they are acknowledged, and go on while there is no stream.
    """

    def __init__(self, where: str, keeper: Keeper, timeout: float, *, keep: bool) -> None:
        self.gate = CreditGate(where, lambda backlog: self.state(pb.ExchangeControl(backlog=backlog)))
        self.totals, self.ended = Totals(), False
        self.items = 0
        self.active = time.monotonic()  # when something was written last
        self._where, self._keeper, self._timeout, self._keep = where, keeper, timeout, keep
        # Held for a whole write. Not taken by a client's reading thread: reading must go on whatever writing does.
        self._writing = threading.Lock()
        self._stream: Stream | None = None
        self._behind = False  # the stream is new: it has to carry what was kept before anything else
        self._overdue = False
        self._error: ShuffleError | None = None
        self._failed = threading.Event()
        self._counting = threading.Lock()  # of the next two
        self._place = SentBlocks()
        self._kept: deque[Message] = deque()

    def put(self, item: Message, deadline: float, sums: Sums | None = None) -> None:
        """Send one item; `sums` is what a batch adds to the totals.

        :raises DeadlineExceeded: it is `deadline` (time.monotonic) and the item is not written. If a write was under
            way, the channel is broken then, unless it can resume.
        :raises ShuffleError: why the channel is broken.
        :raises InvalidArgument: the end has been sent.
        """
        with self._turn(deadline):
            self._check()
            if sums is not None:
                self.totals = sums.added_to(self.totals)
            self._send(item, deadline)

    def end(self, deadline: float) -> None:
        """Send the end: the totals of all that was put. Raises what `put` raises."""
        with self._turn(deadline):
            self._check()
            self.ended = True
            end = pb.ExchangeControl(end=messages.totals_message(self.totals))
            self._send((None, end.SerializeToString()), deadline)

    def state(self, control: pb.ExchangeControl) -> None:
        """Write what is no item, if there is a stream to write it to. Never raises for a broken one."""
        deadline = time.monotonic() + self._timeout
        try:
            with self._turn(deadline):
                if self._stream is not None and not self._behind:
                    self._write((None, control.SerializeToString()), deadline)
        except ShuffleError:
            pass  # the thread that reads the stream meets the same, and is the one to say so

    def acknowledged(self, held: int) -> None:
        """The other end holds this many items.

        :raises ProtocolMismatch: so many were not sent.
        """
        if not self._keep:
            return
        with self._counting:
            self._place = self._place.acknowledge(held)
            while len(self._kept) > self._place.written - self._place.acknowledged:
                self._kept.popleft()

    @property
    def settled(self) -> bool:
        """The end is sent and, where items are kept, acknowledged."""
        with self._counting:
            return self.ended and not self._kept

    @property
    def kept(self) -> int:
        """Items that are not acknowledged yet."""
        return len(self._kept)

    def attach(self, stream: Stream, state: pb.ExchangeControl | None) -> None:
        """Write to `stream` from now on. With `state` it is not the first: that is said at once, items wait for
        :meth:`catch_up`.

        :raises ShuffleError: the stream broke.
        """
        deadline = time.monotonic() + self._timeout
        with self._turn(deadline):
            self._stream, self._behind = stream, False
            if state is not None:
                self._write((None, state.SerializeToString()), deadline)
                self._behind = True

    def catch_up(self, stream: Stream, state: Callable[[], pb.ExchangeControl]) -> None:
        """Send again all that is not acknowledged, then `state` as it is then, then what the gate has to announce.

        :raises ShuffleError: the stream broke again.
        """
        with self._turn(time.monotonic() + self._timeout):
            if self._stream is not stream:
                return
            with self._counting:
                self._place = self._place.reconnect()
                first, kept = self._place.next, list(self._kept)
            for message in ((None, pb.ExchangeControl(first=first).SerializeToString()), *kept):
                self._write(message, time.monotonic() + self._timeout)
            with self._counting:
                self._place = self._place.send(len(kept))
            self._write((None, state().SerializeToString()), time.monotonic() + self._timeout)
            self._behind = False
        self.gate.repeat()

    def detach(self, stream: Stream) -> None:
        """Write no more to `stream`; waits for a write under way, which its deadline or the stream's end ends."""
        with self._writing:
            if self._stream is stream:
                self._stream = None

    def half_close(self) -> None:
        """Nothing more will be written, not even state."""
        with self._writing:
            if self._stream is not None:
                stream, self._stream = self._stream, None
                stream.half_close()

    def fail(self, error: ShuffleError) -> None:
        """Whoever sends now or later gets `error`, the first one. Frees what is kept."""
        self._error = self._error or error
        self._failed.set()
        self.gate.fail(error)
        with self._counting:
            self._kept.clear()

    # The rest is called with the turn held, or takes it.

    @contextmanager
    def _turn(self, deadline: float) -> Iterator[None]:
        if not self._writing.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise DeadlineExceeded(f"{self._where}: another thread was writing until the deadline")
        try:
            yield
        finally:
            self._writing.release()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self.ended:
            raise InvalidArgument(f"{self._where}: sending after half_close", remedy="half-close after the last send")

    def _send(self, item: Message, deadline: float) -> None:
        self.items += 1
        if self._keep:
            with self._counting:
                self._place = self._place.send()
                self._kept.append(item)
        if not self._behind:
            self._write(item, deadline)

    def _write(self, message: Message, deadline: float) -> None:
        stream = self._stream
        if stream is None:
            if self._keep:
                return
            raise self._reason(StreamBroken(f"{self._where}: the stream has ended"))
        self._overdue = False
        self._keeper.begin(self, deadline, self._give_up)
        try:
            stream.write(message)
        except ShuffleError as error:
            self._stream = None
            if not self._keep:
                raise self._reason(error) from error
        finally:
            self._keeper.end(self)
        self.active = time.monotonic()

    def _give_up(self) -> None:
        self._overdue = True
        stream = self._stream
        if stream is not None:
            stream.abort()

    def _reason(self, error: ShuffleError) -> ShuffleError:
        if self._overdue:
            return DeadlineExceeded(f"{self._where}: the transport took nothing until the deadline: {error.message}")
        # The other end may have said why before it stopped listening: that says more than "broken pipe".
        self._failed.wait(_REASON_WAIT)
        return self._error or error
