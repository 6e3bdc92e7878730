"""What one end of a channel sends: in order, within its credit, and kept for as long as it may have to be sent again.

*Items* (batches, control messages, the end) are numbered, by :class:`~shuffle_transport.resume.SentBlocks`. *State*
(grants, acknowledgements, announcements) is not: only the latest counts. So nobody waits to write it: it is noted, and
written by whoever has the turn to write, as it is at that moment; a new stream begins with it.
Credit belongs to the channel, not to a stream: items sent again have been paid for.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shuffle_api.errors import DeadlineExceeded, InvalidArgument, ShuffleError, StreamBroken
from shuffle_transport import messages
from shuffle_transport.channels.stream import Message, Stream
from shuffle_transport.channels.timer_thread import Deadline, TimerThread
from shuffle_transport.channels.wire import BatchMeta, RunningTotals
from shuffle_transport.gate import CreditGate
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.resume import SentBlocks

STATE_TIMEOUT = 5.0  # seconds for a message of a few bytes: a transport that does not take it is broken
_SLOWEST = 1 << 20  # bytes per second of a transport that moves, for what is sent again
_ABORT_WITHIN = 0.5  # seconds for a write to end that was aborted
_REASON_WAIT = 1.0  # seconds in which who reads the stream says why it broke


class KeptItems:
    """Items that were sent, until the other end holds them. Thread-safe.

    :ivar items: the oldest first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._place = SentBlocks()
        self.items: deque[Message] = deque()

    def add(self, item: Message) -> None:
        """It is about to be sent."""
        with self._lock:
            self._place = self._place.send()
            self.items.append(item)

    def acknowledged(self, held: int) -> None:
        """The other end holds this many. Raises ProtocolMismatch: so many were not sent."""
        with self._lock:
            self._place = self._place.acknowledge(held)
            while len(self.items) > self._place.written - self._place.acknowledged:
                self.items.popleft()

    def again(self) -> tuple[int, list[Message]]:
        """All there are, which a new stream is about to carry, and the number of the first."""
        with self._lock:
            self._place = self._place.reconnect()
            first, kept = self._place.next, list(self.items)
            self._place = self._place.send(len(kept))
            return first, kept

    def clear(self) -> None:
        with self._lock:
            self.items.clear()


class DueState:
    """State that is to be written by the thread that has the turn.

    :param state: returns what this end has granted and holds, now.
    :ivar due: there is some; `ping`: it asks for an answer; `backlog`: it says what the gate announces.
    """

    def __init__(self, state: Callable[[], pb.ExchangeControl], gate: CreditGate) -> None:
        self._state, self._gate = state, gate
        self.due = self.ping = self.backlog = False

    def message(self) -> Message:
        """All of it, as it is at this moment."""
        control = self._state()
        if self.ping:
            self.ping, control.ping = False, True
        if self.backlog:
            self.backlog = False
            backlog, spent = self._gate.announcement()
            if backlog:
                control.backlog, control.spent = backlog, spent
        return None, control.SerializeToString()


class WriteDeadline(Deadline):
    """Until when the write under way may last: then its stream is aborted, and severed if that does not end it.

    :ivar stream: that is written to.
    :ivar overdue: the last write has lasted until its deadline.
    """

    def __init__(self, timers: TimerThread) -> None:
        super().__init__(timers, self._give_up)
        self.stream: Stream | None = None
        self.overdue = False

    def _give_up(self, deadline: float) -> None:
        stream = self.stream
        if stream is None:
            return

        def sever() -> None:
            if self.until == deadline:
                stream.sever()

        self.overdue = True
        stream.abort()
        self._timers.begin(sever, time.monotonic() + _ABORT_WITHIN, sever)


class ChannelSender:
    """The sending half of one end of a channel. Any number of threads may call.

    :param where: channel and peer, for errors.
    :param timers: aborts the stream when a write takes too long.
    :param state: returns what this end has granted and holds, now.
    :param keep: keep items until they are acknowledged, and go on while there is no stream.
    """

    def __init__(
        self,
        where: str,
        timers: TimerThread,
        state: Callable[[], pb.ExchangeControl],
        *,
        keep: bool,
    ) -> None:
        self.gate = CreditGate(where, self._announce, shared=True)
        self.running_totals, self.items, self.ended = RunningTotals(checked=True), 0, False
        self.active = time.monotonic()  # when something was written last
        self._where, self._keep = where, keep
        self._state = DueState(state, self.gate)
        self._writing = threading.Lock()  # the turn to write; held for a whole write
        self._written_by = WriteDeadline(timers)
        self._stream: Stream | None = None
        self._behind = False  # the stream is new: it has to carry what was kept before anything else
        self._error: ShuffleError | None = None
        self._failed = threading.Event()
        self._kept = KeptItems()

    def put(self, item: Message, deadline: float, meta: BatchMeta | None = None) -> None:
        """Send one item; `meta` has what a batch adds to the totals, and took of the gate's credit.

        :raises DeadlineExceeded: it is `deadline` (time.monotonic) and the item is not written. If a write was under
            way, the channel is broken then, unless it can resume.
        :raises ShuffleError: why the channel is broken.
        :raises InvalidArgument: the end has been sent.
        """
        if not self._writing.acquire(False):
            try:
                self._take_turn(deadline)
            except DeadlineExceeded:
                if meta is not None:
                    self.gate.give_back(meta.cost)
                raise
        try:
            if self._error is not None or self.ended:
                self._check()
            broken = self._send(item, deadline)
            if meta is not None:
                self.running_totals.add(meta)  # after the write: the other end has something to do meanwhile
        finally:
            if meta is not None:
                self.gate.sent()
            self._end_turn()
        if broken is not None:
            raise self._reason(broken) from broken

    def end(self, deadline: float) -> None:
        """Send the end: the totals of all that was put. Raises what `put` raises."""
        with self._turn(deadline):
            self._check()
            self.ended = True
            end = pb.ExchangeControl(end=messages.totals_message(self.running_totals.totals))
            broken = self._send((None, end.SerializeToString()), deadline)
        if broken is not None:
            raise self._reason(broken) from broken

    def tell(self, *, ping: bool = False) -> None:
        """Have the state written, with `ping` to ask for an answer; soon, if another thread writes. Never raises."""
        if ping:
            self._state.ping = True
        self._state.due = True
        self._flush()

    def idle(self) -> None:
        """Announce that nothing waits, unless something is being sent."""
        if self._writing.acquire(blocking=False):
            # With the turn, so that no batch whose credit is taken later arrives before it.
            try:
                self.gate.idle()
            finally:
                self._end_turn()

    def refuse(self, error: ShuffleError) -> None:
        """Send the other end why this one leaves. Never raises: then the other end sees the broken stream only."""
        deadline = time.monotonic() + STATE_TIMEOUT
        control = error_control(error)
        try:
            with self._turn(deadline):
                self._write((None, control.SerializeToString()), deadline)
        except DeadlineExceeded:
            pass  # another thread is in the middle of a write that does not end

    def acknowledged(self, held: int) -> None:
        """The other end holds this many items.

        :raises ProtocolMismatch: so many were not sent.
        """
        if self._keep:
            self._kept.acknowledged(held)

    @property
    def settled(self) -> bool:
        """The end is sent and, where items are kept, acknowledged."""
        return self.ended and not self._kept.items

    @property
    def kept(self) -> int:
        """Items that are not acknowledged yet."""
        return len(self._kept.items)

    def attach(self, stream: Stream, *, hello: bool, behind: bool) -> None:
        """Write to `stream` from now on.

        :param hello: the state first.
        :param behind: items only after `catch_up`.
        """
        with self._turn(math.inf):
            self._stream, self._behind = stream, False
            if hello:
                self._write_state()
            self._behind = behind

    def catch_up(self, stream: Stream) -> None:
        """The other end has said what it holds: send the rest again, then what the gate has to announce."""
        with self._turn(math.inf):
            if self._stream is not stream:
                return
            first, kept = self._kept.again()
            for message in ((None, pb.ExchangeControl(first=first).SerializeToString()), *kept):
                # Too short for a large batch, a deadline would break this stream and every one after it.
                size = 0 if message[0] is None else message[0].nbytes
                self._write(message, time.monotonic() + STATE_TIMEOUT + size / _SLOWEST)
            self._behind = False
            self._state.due = True  # what became due meanwhile could not be written
            if self.gate.waiting:
                self._state.backlog = True
            else:
                self.gate.idle()

    def detach(self, stream: Stream) -> None:
        """Write no more to `stream`; waits for a write under way, which its deadline or the stream's end ends."""
        self._writing.acquire()
        if self._stream is stream:
            self._stream = None
        self._end_turn()

    def half_close(self) -> None:
        """Nothing more will be written, not even state."""
        with self._writing:
            if self._stream is not None:
                stream, self._stream = self._stream, None
                try:
                    stream.half_close()
                except ShuffleError:
                    pass  # who reads the stream says what became of it

    def close(self) -> None:
        """Nobody sends any more."""
        self.gate.close()
        self._written_by.close()

    def fail(self, error: ShuffleError) -> None:
        """Whoever sends now or later gets `error`, the first one. Frees what is kept."""
        self._error = self._error or error
        self._failed.set()
        self.gate.fail(error)
        self._kept.clear()

    # ------------------------------------------------------------------------------------------------- turns

    @contextmanager
    def _turn(self, deadline: float) -> Iterator[None]:
        self._take_turn(deadline)
        try:
            yield
        finally:
            self._end_turn()

    def _take_turn(self, deadline: float) -> None:
        timeout = min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)
        if not self._writing.acquire(timeout=timeout):
            raise DeadlineExceeded(f"{self._where}: another thread was writing until the deadline")

    def _end_turn(self) -> None:
        self._writing.release()
        if self._state.due:
            self._flush()

    def _flush(self) -> None:
        # Who finds the turn taken leaves: the thread that has it looks again when its turn ends.
        while self._state.due and self._writing.acquire(blocking=False):
            try:
                self._state.due = False
                if not self._behind:
                    self._write_state()
            finally:
                self._writing.release()

    # ------------------------------------------------------------------------------------- with the turn held

    def _announce(self, backlog: int) -> None:
        """The gate's. A backlog is written like other state; that nothing waits, at once, by who called `gate.idle`."""
        if backlog:
            self._state.backlog = self._state.due = True
            self._flush()
        elif self._stream is not None and not self._behind:
            self._state.backlog = False
            control = pb.ExchangeControl(backlog=0)
            self._write((None, control.SerializeToString()), time.monotonic() + STATE_TIMEOUT)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self.ended:
            raise InvalidArgument(f"{self._where}: sending after half_close", remedy="half-close after the last send")

    def _send(self, item: Message, deadline: float) -> ShuffleError | None:
        self.items += 1
        if self._keep:
            self._kept.add(item)
        broken = None if self._behind else self._write(item, deadline)
        return None if self._keep else broken

    def _write_state(self) -> None:
        self._write(self._state.message(), time.monotonic() + STATE_TIMEOUT)

    def _write(self, message: Message, deadline: float) -> ShuffleError | None:
        """Write if there is a stream. Returns why that failed; who reads the stream meets the same, and acts on it."""
        stream = self._stream
        if stream is None:
            return StreamBroken(f"{self._where}: the stream has ended")
        writing = self._written_by
        writing.stream, writing.overdue = stream, False
        writing.begin(deadline)
        try:
            stream.write(message)
        except ShuffleError as error:
            self._stream = None
            return error
        finally:
            writing.end()
            writing.stream = None
        self.active = time.monotonic()
        return None

    def _reason(self, error: ShuffleError) -> ShuffleError:
        if self._written_by.overdue:
            return DeadlineExceeded(f"{self._where}: the transport took nothing until the deadline: {error.message}")
        # The other end may have said why before it stopped listening: that says more than "broken pipe".
        self._failed.wait(_REASON_WAIT)
        return self._error or error


def error_control(error: ShuffleError) -> pb.ExchangeControl:
    """The control message that carries `error` to the other end."""
    return pb.ExchangeControl(error=messages.error_message(error), broken=isinstance(error, StreamBroken))
