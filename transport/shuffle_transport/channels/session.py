"""One end of a channel, from stream to stream: the receiver gets the messages that arrive, both halves get errors.

A session has a stream at a time. With `resume` it outlives streams: then both ends say on a new one what they hold, go
back to that, and go on; credit, queues and numbers are the session's.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from shuffle_api.clock import Silence
from shuffle_api.errors import DeadlineExceeded, ShuffleError, StreamBroken
from shuffle_transport import messages
from shuffle_transport.channels.backpressure_compressor import BackpressureCompressor
from shuffle_transport.channels.credit_account import CreditAccount
from shuffle_transport.channels.leader_follower import LeaderFollower
from shuffle_transport.channels.receiver import ChannelReceiver, Found
from shuffle_transport.channels.sender import ChannelSender
from shuffle_transport.channels.stream import Message, Stream
from shuffle_transport.channels.timer_thread import TimerThread
from shuffle_transport.channels.wire import parse_inline, parse_record_batch
from shuffle_transport.channels.writer_thread import WriterThread
from shuffle_transport.codecs import Codec
from shuffle_transport.granter import Granter
from shuffle_transport.proto import flight_shuffle_pb2 as pb

LEAVE_WITHIN = 5.0  # seconds for the other end to end the stream of a channel that is over
ANSWER_WITHIN = 2.0  # seconds for a ping that a consumer waits for beyond its deadline
LEAD_FROM = 5 * ANSWER_WITHIN  # who waits for less does not read itself: its deadline could be far exceeded
_QUIET = 1.0  # seconds without a message after which a sender is idle
_LONG = 60.0
_OFTEN = 0.05  # seconds: a client's keepalive must not keep the timer thread, which serves all of them, busy


@dataclass(frozen=True, slots=True)
class ChannelThreads:
    """The threads that the channels of a client, or of an endpoint, share."""

    timers: TimerThread
    writer: WriterThread
    compressor: BackpressureCompressor

    def close(self) -> None:
        """End them."""
        self.writer.close()
        self.compressor.close()
        self.timers.close()


class Session:
    """One end of a channel.

    :param where: channel and peer, for errors.
    :param granter: the window of what this end receives; closed by `close`.
    :param silence: seconds without a message after which the other end is taken for dead; 0: never.
    :param resume: keep items until they are acknowledged, and wait for another stream when one breaks.
    """

    def __init__(
        self,
        where: str,
        granter: Granter,
        codec: Codec,
        threads: ChannelThreads,
        *,
        silence: float,
        resume: bool,
    ) -> None:
        self.where, self.codec, self.resume = where, codec, resume
        self.account = CreditAccount(where, granter)
        self.receiver = ChannelReceiver(where, self.account, codec, self.consumed, resume=resume)
        self.sender = ChannelSender(where, threads.timers, self._state, keep=resume)
        self.heard = self.known = False  # something has come: on the present stream, on any
        self._timers, self._writer_thread, self._silence = threads.timers, threads.writer, silence
        self.compressor = threads.compressor
        self._unheard = Silence(silence / 4)
        self._stream: Stream | None = None
        self._readers: LeaderFollower | None = None
        self._detached = threading.Event()
        self._away_until = math.inf
        self._silent = False
        self._lagging: Stream | None = None  # the other end has said what it holds; the rest is to be sent again
        self._you = ""  # to be said with the state that comes next
        self._deciding = threading.Lock()
        self._over = self._ahead = False
        self._failed = self._resuming = False
        self.changing = threading.Lock()  # for who changes the stream
        self._refusal: ShuffleError | None = None

    # -------------------------------------------------------------------------------------------- streams

    def attach(self, stream: Stream, *, resumed: bool = False, accepting: bool = False) -> None:
        """Use `stream` from now on; the caller goes on to `run`.

        :param resumed: this end has had another one.
        :param accepting: the other end opened it, and expects this one's state.
        :raises StreamBroken: the channel is over; ending the stream is left to the caller.
        """
        readers = LeaderFollower(stream, self._timers, self)
        # Who ends the channel ends the stream that it finds. One that came a moment later nobody would end.
        with self._deciding:
            if self._over:
                raise StreamBroken(
                    f"{self.where}: it has ended, or was away for too long",
                    remedy="open a new channel and send everything again",
                )
            self._silent = self.heard = False
            self._detached.clear()
            self._resuming = resumed
            self._you = stream.peer if accepting else ""
            self._stream, self._readers = stream, readers
        self.sender.attach(stream, hello=resumed or accepting, behind=resumed)

    def run(self, *, away: float = math.inf) -> ShuffleError | None:
        """Read the attached stream to its end, on a thread of its own. Says why it ended; None: the channel is over.

        :param away: if the stream breaks, the channel fails after this many seconds without another one.
        """
        stream, readers = self._stream, self._readers
        assert stream is not None
        assert readers is not None
        reason = readers.run()
        self._away_until = time.monotonic() + away  # first: without a stream, the time of an earlier absence is over
        self._stream = self._readers = None
        self._timers.end(stream)
        self.sender.detach(stream)
        self._detached.set()
        if away < math.inf:
            self._timers.hurry()
        if self._silent:
            reason = StreamBroken(f"the other end has been silent for {self._silence:g} s")
        return None if self._over else reason

    def evict(self, newcomer: Stream, timeout: float) -> None:
        """Make room for another stream: the present one is dead, though this end has not noticed.

        :raises DeadlineExceeded: it did not end in time.
        """
        stream = self._stream
        if stream is not None and stream.peer != newcomer.peer:
            stream.abort()
        if not self._detached.wait(timeout):
            raise DeadlineExceeded("the channel's earlier stream has not ended", remedy="try again")

    # ------------------------------------------------------------------------------------------- the caller

    def receive(self, timeout: float) -> Found:
        """See BlockChannel.receive."""
        found = self.receiver.take(0)
        if found is not None:
            return found
        deadline, left = time.monotonic() + timeout, timeout
        while left > 0:
            readers = self._readers
            if readers is not None and left >= LEAD_FROM and readers.lead(deadline):
                found = self.receiver.take(0)
            else:
                found = self._follow(readers, left)
            if found is not None:
                return found
            left = deadline - time.monotonic()
        raise DeadlineExceeded(f"{self.where}: nothing came within {timeout:g} s")

    def consumed(self, n: int) -> None:
        """See BlockChannel.consumed."""
        if self.account.consumed(n) is not None:
            # by the consumer itself: to wake the writer thread for it costs as much, and two threads more
            self.sender.tell()

    def acquire(self, cost: int, timeout: float) -> None:
        """Wait for credit for a batch that costs this; see CreditGate.acquire."""
        self.sender.gate.acquire(cost, timeout, read=self._read_grants)

    def finish(self) -> None:
        """Something has ended: leave if that was the last thing."""
        if self.receiver.ended and self.sender.settled:
            with self._deciding:
                if self._over:
                    return
                self._over = True
            self._writer_thread.soon(self.sender.half_close, self.fail)
            self.wake_leader()

    @property
    def over(self) -> bool:
        """Both ends have said all they had to say, or the channel has failed."""
        return self._over

    @property
    def attached(self) -> bool:
        return self._stream is not None

    def abandon(self, error: ShuffleError) -> None:
        """End both directions with `error`, and send it to the other end."""
        if not self._over:
            self.sender.refuse(error)
            self.fail(error)

    def fail(self, error: ShuffleError, *, unless_attached: bool = False) -> None:
        """Whoever uses this end, now or later, gets `error` (the first one); the stream, if any, ends soon."""
        with self._deciding:
            if self._over or (unless_attached and self._stream is not None):
                return
            self._over = self._failed = True
        error.message = f"{self.where}: {error.message}"
        self.sender.fail(error)
        self.receiver.fail(error)
        self.leave()

    def leave(self) -> None:
        """Half-close the stream, and give the other end LEAVE_WITHIN seconds to end it."""
        stream = self._stream
        if stream is not None:
            self._timers.begin(stream, time.monotonic() + LEAVE_WITHIN, stream.abort)
            self._writer_thread.soon(self.sender.half_close, self.fail)
            self.wake_leader()

    def close(self) -> None:
        """Nobody uses this end any more: free the memory."""
        if self.receiver.close() is not None and not self._over:
            self.sender.tell()
        self.sender.close()

    # ------------------------------------------------------------------- what the timer thread and the writer thread do

    def check(self, now: float) -> float:
        """Is the other end alive? Returns when to ask again."""
        stream, readers = self._stream, self._readers
        if stream is None or readers is None:
            if not self._over and now > self._away_until:
                self.fail(StreamBroken("the other end did not come back in time"), unless_attached=True)
            if self._over:
                return now + _LONG
            return min(now + _LONG, max(now, self._away_until))
        if self._silence and self._unheard.look((stream, readers.heard_at)) > self._silence:
            self._silent = True
            stream.abort()
        return now + max((self._silence or _LONG) / 4, _OFTEN)

    def ping(self, silence: float) -> None:
        """Say something and ask the other end to, unless something was said `silence` seconds ago or less."""
        if time.monotonic() - self.sender.active >= silence:
            self.sender.idle()
            self.sender.tell(ping=True)

    def _tell(self) -> None:
        self.sender.tell()

    def _answer(self) -> None:
        if time.monotonic() - self.sender.active >= _QUIET:
            self.sender.idle()
        self.sender.tell()

    def _ask(self) -> None:
        self.sender.tell(ping=True)

    def _catch_up(self) -> None:
        stream, self._lagging = self._lagging, None  # not one that came since: its other end has not spoken yet
        if stream is not None:
            self.sender.catch_up(stream)

    def _refuse(self) -> None:
        if self._refusal is not None:
            self.abandon(self._refusal)

    # ------------------------------------------------------------------------- reading, by whatever thread

    def dispatch(self, message: Message) -> bool:
        """Take a message in; whether it is an item. Never waits for the transport: the writer thread writes what there
        is."""
        if not self.heard:
            self.heard = self.known = True
        if self._failed or self._refusal is not None:
            return False  # nothing counts any more; the other end is to come to what was said last
        batch, metadata = message
        try:
            if batch is not None:
                found = parse_record_batch(batch)
            else:
                control = messages.parse(pb.ExchangeControl, metadata or b"")
                table = control.rows  # each look at a field copies it
                if not table:
                    return self._control(control)
                found = parse_inline(table, control.payload)
            if self.receiver.put_batch(*found) is not None:
                self._writer_thread.soon(self._tell, self.fail)
            return True
        except ShuffleError as refusal:
            self._refusal = refusal
            self._writer_thread.soon(self._refuse, self.fail)
            return False

    def _control(self, control: pb.ExchangeControl) -> bool:
        due = item = False
        if control.held:  # before the grant that came with it, so that no more is kept than a window
            self.sender.acknowledged(control.held)
        if control.granted:
            self.sender.gate.granted(control.granted)
        if control.you and self._stream is not None:
            self._stream.seen_as = control.you
        if self._resuming:  # the first message on a new stream says what the other end holds
            self._resuming, self._lagging = False, self._stream
            self._writer_thread.soon(self._catch_up, self.fail)
        if control.HasField("first"):
            self.receiver.begin(control.first)
        if control.HasField("message"):
            self.receiver.put_control(control.message)
            item = True
        elif control.HasField("end"):
            self.receiver.put_end(messages.totals(control.end))
            due, item = self.resume, True
        if control.HasField("backlog"):
            hungry = self._readers is not None and self._readers.waited
            due |= self.account.announced(control.backlog, control.spent, hungry=hungry) is not None
        if control.HasField("error"):
            error = messages.typed_error(control.error)
            self.fail(StreamBroken(error.message, remedy=error.remedy) if control.broken else error)
        if control.ping:
            self._writer_thread.soon(self._answer, self.fail)
        elif due:
            self._writer_thread.soon(self._tell, self.fail)
        self.finish()
        return item

    def late(self) -> None:
        """The timer thread's: a consumer reads beyond its deadline. The answer to a ping ends that."""
        stream, readers, asked = self._stream, self._readers, time.monotonic()
        self._writer_thread.soon(self._ask, self.fail)

        def unanswered() -> None:
            if stream is not None and readers is not None and readers.heard_at < asked:
                stream.abort()

        self._timers.begin(unanswered, asked + ANSWER_WITHIN, unanswered)

    def _follow(self, readers: LeaderFollower | None, timeout: float) -> Found | None:
        """Wait for the receiver while another thread reads, or while there is no stream."""
        if readers is None:
            return self.receiver.take(timeout)
        me = object()
        readers.follow(me, leads=timeout >= LEAD_FROM)
        try:
            return self.receiver.take(timeout)
        finally:
            readers.unfollow(me)

    def _read_grants(self, there: Callable[[], bool], deadline: float) -> None:
        """The gate's: a sender waits for credit."""
        readers = self._readers
        leads = deadline - time.monotonic() >= LEAD_FROM
        if readers is None or not leads or not readers.lead(deadline, there):
            self.wake_leader()

    def written(self) -> float:
        """See StreamUser."""
        return self.sender.active

    def ready(self) -> bool:
        """See StreamUser."""
        return self.receiver.ready()

    def needs_reading(self) -> bool:
        """See StreamUser."""
        gate = self.sender.gate
        return self._over or gate.starved or (self._ahead and gate.low)

    def read_ahead(self) -> None:
        """Let the next grant be read before the credit is gone: from now on whenever it is low."""
        self._ahead = True
        self.wake_leader()

    def wake_leader(self) -> None:
        """Somebody waits for what is no item, or soon will: see that what comes is read."""
        readers = self._readers
        if readers is not None:
            readers.wake_leader()

    def _state(self) -> pb.ExchangeControl:
        you, self._you = self._you, ""
        return pb.ExchangeControl(granted=self.account.granted, held=self.receiver.held if self.resume else 0, you=you)
