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


class AttachedStream:
    """The stream that a session has now.

    :ivar readers: which threads read it.
    :ivar you: the other end's address, to be said with the state that comes next.
    :ivar resumes: the first message on it says what the other end holds.
    :ivar lagging: it has said so; the rest is to be sent again.
    :ivar silent: nothing has come for too long.
    """

    __slots__ = ("lagging", "readers", "resumes", "silent", "stream", "you")

    def __init__(self, stream: Stream, readers: LeaderFollower, *, resumes: bool, you: str) -> None:
        self.stream, self.readers, self.resumes, self.you = stream, readers, resumes, you
        self.lagging = self.silent = False


class SilenceLimit:
    """For how long the other end may say nothing.

    :ivar seconds: 0: without limit.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._unheard = Silence(seconds / 4)

    def exceeded(self, attached: AttachedStream) -> bool:
        heard = attached.stream, attached.readers.heard_at
        return bool(self.seconds) and self._unheard.look(heard) > self.seconds

    @property
    def look_after(self) -> float:
        """Seconds until it is worth to look again."""
        return max((self.seconds or _LONG) / 4, _OFTEN)


class Absence:
    """The time in which a session has no stream.

    :ivar began: set while it lasts.
    :ivar until: when the channel fails without another stream (time.monotonic()).
    """

    def __init__(self) -> None:
        self.began, self.until = threading.Event(), math.inf


class Ending:
    """Whether a channel is over, which is decided once.

    :ivar deciding: the lock for that. Who ends the channel ends the stream that it finds. One that came a moment later
        nobody would end, so it is held as well when a stream is attached.
    :ivar over: both ends have said all they had to say, or it has failed; `failed`: the latter.
    """

    __slots__ = ("deciding", "failed", "over")

    def __init__(self) -> None:
        self.deciding = threading.Lock()
        self.over = self.failed = False

    def decide(self, *, failed: bool) -> bool:
        """With the lock held: the channel is over from now on. False: it was before."""
        if self.over:
            return False
        self.over, self.failed = True, failed
        return True


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
        self.threads, self._silence = threads, SilenceLimit(silence)
        self._attached: AttachedStream | None = None
        self._absence, self._ending = Absence(), Ending()
        self._ahead = False
        self.changing = threading.Lock()  # for who changes the stream
        self._refusal: ShuffleError | None = None

    # -------------------------------------------------------------------------------------------- streams

    def attach(self, stream: Stream, *, resumed: bool = False, accepting: bool = False) -> None:
        """Use `stream` from now on; the caller goes on to `run`.

        :param resumed: this end has had another one.
        :param accepting: the other end opened it, and expects this one's state.
        :raises StreamBroken: the channel is over; ending the stream is left to the caller.
        """
        readers = LeaderFollower(stream, self.threads.timers, self)
        attached = AttachedStream(stream, readers, resumes=resumed, you=stream.peer if accepting else "")
        with self._ending.deciding:
            if self._ending.over:
                raise StreamBroken(
                    f"{self.where}: it has ended, or was away for too long",
                    remedy="open a new channel and send everything again",
                )
            self.heard = False
            self._absence.began.clear()
            self._attached = attached
        self.sender.attach(stream, hello=resumed or accepting, behind=resumed)

    def run(self, *, away: float = math.inf) -> ShuffleError | None:
        """Read the attached stream to its end, on a thread of its own. Says why it ended; None: the channel is over.

        :param away: if the stream breaks, the channel fails after this many seconds without another one.
        """
        attached = self._attached
        assert attached is not None
        reason = attached.readers.run()
        self._absence.until = time.monotonic() + away  # first: without a stream, an earlier absence's time is over
        self._attached = None
        self.threads.timers.end(attached.stream)
        self.sender.detach(attached.stream)
        self._absence.began.set()
        if away < math.inf:
            self.threads.timers.hurry()
        if attached.silent:
            reason = StreamBroken(f"the other end has been silent for {self._silence.seconds:g} s")
        return None if self._ending.over else reason

    def evict(self, newcomer: Stream, timeout: float) -> None:
        """Make room for another stream: the present one is dead, though this end has not noticed.

        :raises DeadlineExceeded: it did not end in time.
        """
        attached = self._attached
        if attached is not None and attached.stream.peer != newcomer.peer:
            attached.stream.abort()
        if not self._absence.began.wait(timeout):
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
            with self._ending.deciding:
                if not self._ending.decide(failed=False):
                    return
            self.threads.writer.soon(self.sender.half_close, self.fail)
            self.wake_leader()

    @property
    def over(self) -> bool:
        """Both ends have said all they had to say, or the channel has failed."""
        return self._ending.over

    @property
    def attached(self) -> bool:
        return self._attached is not None

    @property
    def _readers(self) -> LeaderFollower | None:
        attached = self._attached
        return None if attached is None else attached.readers

    def abandon(self, error: ShuffleError) -> None:
        """End both directions with `error`, and send it to the other end."""
        if not self._ending.over:
            self.sender.refuse(error)
            self.fail(error)

    def fail(self, error: ShuffleError, *, unless_attached: bool = False) -> None:
        """Whoever uses this end, now or later, gets `error` (the first one); the stream, if any, ends soon."""
        with self._ending.deciding:
            if (unless_attached and self._attached is not None) or not self._ending.decide(failed=True):
                return
        error.message = f"{self.where}: {error.message}"
        self.sender.fail(error)
        self.receiver.fail(error)
        self.leave()

    def leave(self) -> None:
        """Half-close the stream, and give the other end LEAVE_WITHIN seconds to end it."""
        attached = self._attached
        if attached is not None:
            stream = attached.stream
            self.threads.timers.begin(stream, time.monotonic() + LEAVE_WITHIN, stream.abort)
            self.threads.writer.soon(self.sender.half_close, self.fail)
            self.wake_leader()

    def close(self) -> None:
        """Nobody uses this end any more: free the memory."""
        if self.receiver.close() is not None and not self._ending.over:
            self.sender.tell()
        self.sender.close()

    # ------------------------------------------------------------------- what the timer thread and the writer thread do

    def check(self, now: float) -> float:
        """Is the other end alive? Returns when to ask again."""
        attached = self._attached
        if attached is None:
            if not self._ending.over and now > self._absence.until:
                self.fail(StreamBroken("the other end did not come back in time"), unless_attached=True)
            if self._ending.over:
                return now + _LONG
            return min(now + _LONG, max(now, self._absence.until))
        if self._silence.exceeded(attached):
            attached.silent = True
            attached.stream.abort()
        return now + self._silence.look_after

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
        attached = self._attached
        if attached is not None and attached.lagging:  # not one that came since: its other end has not spoken yet
            attached.lagging = False
            self.sender.catch_up(attached.stream)

    def _refuse(self) -> None:
        if self._refusal is not None:
            self.abandon(self._refusal)

    # ------------------------------------------------------------------------- reading, by whatever thread

    def dispatch(self, message: Message) -> bool:
        """Take a message in; whether it is an item. Never waits for the transport: the writer thread writes what there
        is."""
        if not self.heard:
            self.heard = self.known = True
        if self._ending.failed or self._refusal is not None:
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
                self.threads.writer.soon(self._tell, self.fail)
            return True
        except ShuffleError as refusal:
            self._refusal = refusal
            self.threads.writer.soon(self._refuse, self.fail)
            return False

    def _control(self, control: pb.ExchangeControl) -> bool:
        due = item = False
        attached = self._attached
        if control.held:  # before the grant that came with it, so that no more is kept than a window
            self.sender.acknowledged(control.held)
        if control.granted:
            self.sender.gate.granted(control.granted)
        if control.you and attached is not None:
            attached.stream.seen_as = control.you
        if attached is not None and attached.resumes:
            attached.resumes, attached.lagging = False, True
            self.threads.writer.soon(self._catch_up, self.fail)
        if control.HasField("first"):
            self.receiver.begin(control.first)
        if control.HasField("message"):
            self.receiver.put_control(control.message)
            item = True
        elif control.HasField("end"):
            self.receiver.put_end(messages.totals(control.end))
            due, item = self.resume, True
        if control.HasField("backlog"):
            hungry = attached is not None and attached.readers.waited
            due |= self.account.announced(control.backlog, control.spent, hungry=hungry) is not None
        if control.HasField("error"):
            error = messages.typed_error(control.error)
            self.fail(StreamBroken(error.message, remedy=error.remedy) if control.broken else error)
        if control.ping:
            self.threads.writer.soon(self._answer, self.fail)
        elif due:
            self.threads.writer.soon(self._tell, self.fail)
        self.finish()
        return item

    def late(self) -> None:
        """The timer thread's: a consumer reads beyond its deadline. The answer to a ping ends that."""
        attached, asked = self._attached, time.monotonic()
        self.threads.writer.soon(self._ask, self.fail)

        def unanswered() -> None:
            if attached is not None and attached.readers.heard_at < asked:
                attached.stream.abort()

        self.threads.timers.begin(unanswered, asked + ANSWER_WITHIN, unanswered)

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
        return self._ending.over or gate.starved or (self._ahead and gate.low)

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
        attached, you = self._attached, ""
        if attached is not None:
            you, attached.you = attached.you, ""
        return pb.ExchangeControl(granted=self.account.granted, held=self.receiver.held if self.resume else 0, you=you)
