"""The life of one end of a channel, from stream to stream: what arrives is put into the boxes, what fails is told.

A session has a stream at a time. With `resume` it outlives streams: then both ends say on a new one what they hold, go
back to that, and go on; credit, queues and numbers are the session's.
"""

from __future__ import annotations

import math
import threading
import time

from shuffle_api.errors import DeadlineExceeded, ShuffleError, StreamBroken
from shuffle_transport import messages
from shuffle_transport.codecs import Codec
from shuffle_transport.exchange.account import Account
from shuffle_transport.exchange.inbox import Found, Inbox
from shuffle_transport.exchange.keeper import Keeper
from shuffle_transport.exchange.outbox import Outbox
from shuffle_transport.exchange.reading import Reading
from shuffle_transport.exchange.scribe import Scribe
from shuffle_transport.exchange.stream import Message, Stream
from shuffle_transport.exchange.wire import Parcel, parse_inline, parse_record_batch
from shuffle_transport.granter import Granter
from shuffle_transport.proto import flight_shuffle_pb2 as pb

LEAVE_WITHIN = 5.0  # seconds for the other end to end the stream of a channel that is over
ANSWER_WITHIN = 2.0  # seconds for a ping that a consumer waits for beyond its deadline
LEAD_FROM = 5 * ANSWER_WITHIN  # who waits for less does not read itself: its deadline could be far exceeded
_QUIET = 1.0  # seconds without a message after which a sender is idle
_LONG = 60.0
_OFTEN = 0.05  # seconds: what a client promises must not keep the keeper, which serves all of them, busy


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
        *,
        granter: Granter,
        codec: Codec,
        keeper: Keeper,
        scribe: Scribe,
        silence: float,
        resume: bool,
    ) -> None:
        self.where, self.codec, self.resume = where, codec, resume
        self.account = Account(where, granter)
        self.inbox = Inbox(where, self.account, codec, self.consumed, resume=resume)
        self.outbox = Outbox(where, keeper, self._state, self._summon, keep=resume)
        self.heard = self.known = False  # something has come: on the present stream, on any
        self._keeper, self._scribe, self._silence = keeper, scribe, silence
        self._stream: Stream | None = None
        self._reading: Reading | None = None
        self._detached = threading.Event()
        self._heard_at, self._away_until = time.monotonic(), math.inf
        self._silent = False
        self._lagging: Stream | None = None  # the other end has said what it holds; the rest is to be sent again
        self._leads_until: dict[object, float] = {}  # deadlines of those who lead, or are about to
        self._nudge_at = math.inf  # when the keeper looks at these
        self._you = ""  # to be said with the state that comes next
        self._deciding = threading.Lock()
        self._over = False
        self._failed = self._resuming = False
        self.changing = threading.Lock()  # for who changes the stream
        self._refusal: ShuffleError | None = None

    # -------------------------------------------------------------------------------------------- streams

    def attach(self, stream: Stream, *, resumed: bool = False, accepting: bool = False) -> None:
        """Use `stream` from now on; the caller goes on to `run`.

        :param resumed: this end has had another one.
        :param accepting: it is the other end that opened it, and would know of this one's state.
        :raises StreamBroken: the channel is over; ending the stream is left to the caller.
        """
        reading = Reading(
            stream, self._keeper, self._dispatch, written=lambda: self.outbox.active, needed=self._needs_reading
        )
        # Who ends the channel ends the stream that it finds. One that came a moment later nobody would end.
        with self._deciding:
            if self._over:
                raise StreamBroken(
                    f"{self.where}: it has ended, or was away for too long",
                    remedy="open a new channel and send everything again",
                )
            self._silent, self.heard, self._heard_at = False, False, time.monotonic()
            self._detached.clear()
            self._resuming = resumed
            self._you = stream.peer if accepting else ""
            self._stream, self._reading = stream, reading
        self.outbox.attach(stream, hello=resumed or accepting, behind=resumed)

    def run(self, *, away: float = math.inf) -> ShuffleError | None:
        """Read the attached stream to its end, on a thread of its own. Says why it ended; None: the channel is over.

        :param away: if the stream breaks, the channel fails after this many seconds without another one.
        """
        stream, reading = self._stream, self._reading
        assert stream is not None
        assert reading is not None
        reason = reading.run()
        self._away_until = time.monotonic() + away  # first: without a stream, the time of an earlier absence is over
        self._stream = self._reading = None
        self._keeper.end(stream)
        self.outbox.detach(stream)
        self._detached.set()
        if away < math.inf:
            self._keeper.hurry()
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
        found = self.inbox.take(0) if self.inbox.ready else None
        deadline = time.monotonic() + timeout
        while found is None:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise DeadlineExceeded(f"{self.where}: nothing came within {timeout:g} s")
            reading = self._reading
            if reading is not None and remaining >= LEAD_FROM and self._lead(reading, deadline):
                found = self.inbox.take(0)
            else:
                found = self._follow(reading, remaining)
        return found

    def consumed(self, n: int) -> None:
        """See BlockChannel.consumed."""
        if self.account.consumed(n) is not None:
            self.grant_soon()

    def grant_soon(self) -> None:
        """A grant is due: the scribe writes it. The consumer has better to do, it takes 0.1 ms or more of its time."""
        self._scribe.soon(self._tell)

    def finish(self) -> None:
        """Something has ended: leave if that was the last thing."""
        if self.inbox.ended and self.outbox.settled:
            with self._deciding:
                if self._over:
                    return
                self._over = True
            self._scribe.soon(self.outbox.half_close)
            self._summon()

    @property
    def over(self) -> bool:
        """Both ends have said all they had to say, or the channel has failed."""
        return self._over

    @property
    def attached(self) -> bool:
        return self._stream is not None

    def abandon(self, error: ShuffleError) -> None:
        """End both directions with `error`, and tell the other end."""
        if not self._over:
            self.outbox.refuse(error)
            self.fail(error)

    def fail(self, error: ShuffleError, *, unless_attached: bool = False) -> None:
        """Whoever uses this end, now or later, gets `error` (the first one); the stream, if any, ends soon."""
        with self._deciding:
            if self._over or (unless_attached and self._stream is not None):
                return
            self._over = self._failed = True
        error.message = f"{self.where}: {error.message}"
        self.outbox.fail(error)
        self.inbox.fail(error)
        self.leave()

    def leave(self) -> None:
        """Half-close the stream, and give the other end LEAVE_WITHIN seconds to end it."""
        stream = self._stream
        if stream is not None:
            self._keeper.begin(stream, time.monotonic() + LEAVE_WITHIN, stream.abort)
            self._scribe.soon(self.outbox.half_close)
            self._summon()

    def close(self) -> None:
        """Nobody uses this end any more: free the memory."""
        self._keeper.end(self._nudge)
        self.inbox.close()
        self.outbox.gate.close()

    # --------------------------------------------------------------------- what the keeper and the scribe do

    def check(self, now: float) -> float:
        """Is the other end alive? Returns when to ask again."""
        stream = self._stream
        if stream is None:
            if not self._over and now > self._away_until:
                self.fail(StreamBroken("the other end did not come back in time"), unless_attached=True)
            if self._over:
                return now + _LONG
            return min(now + _LONG, max(now, self._away_until))
        if self._silence and now - self._heard_at > self._silence:
            self._silent = True
            stream.abort()
        return now + max((self._silence or _LONG) / 4, _OFTEN)

    def ping(self, silence: float) -> None:
        """Say something and ask the other end to, unless something was said `silence` seconds ago or less."""
        if time.monotonic() - self.outbox.active >= silence:
            self.outbox.idle()
            self.outbox.tell(ping=True)

    def _tell(self) -> None:
        self.outbox.tell()

    def _answer(self) -> None:
        if time.monotonic() - self.outbox.active >= _QUIET:
            self.outbox.idle()
        self.outbox.tell()

    def _ask(self) -> None:
        self.outbox.tell(ping=True)

    def _catch_up(self) -> None:
        stream, self._lagging = self._lagging, None  # not one that came since: its other end has not spoken yet
        if stream is not None:
            self.outbox.catch_up(stream)

    def _refuse(self) -> None:
        if self._refusal is not None:
            self.abandon(self._refusal)

    # ------------------------------------------------------------------------- reading, by whatever thread

    def _dispatch(self, message: Message) -> bool:
        """Take a message in; whether it is an item. Never waits for the transport: the scribe writes what there is."""
        self._heard_at = time.monotonic()
        if not self.heard:
            self.heard = self.known = True
        if self._failed or self._refusal is not None:
            return False  # nothing counts any more; the other end is to come to what was said last
        batch, metadata = message
        try:
            if batch is not None:
                return self._batch(*parse_record_batch(batch))
            control = messages.parse(pb.ExchangeControl, metadata or b"")
            if control.rows:
                return self._batch(*parse_inline(control))
            return self._control(control)
        except ShuffleError as refusal:
            self._refusal = refusal
            self._scribe.soon(self._refuse)
            return False

    def _batch(self, payload: memoryview, parcel: Parcel) -> bool:
        if self.inbox.put_batch(payload, parcel) is not None:
            self.grant_soon()
        return True

    def _control(self, control: pb.ExchangeControl) -> bool:
        due = item = False
        if control.granted:
            self.outbox.gate.granted(control.granted)
        if control.held:
            self.outbox.acknowledged(control.held)
        if control.you and self._stream is not None:
            self._stream.seen_as = control.you
        if self._resuming:  # the first message on a new stream says what the other end holds
            self._resuming, self._lagging = False, self._stream
            self._scribe.soon(self._catch_up)
        if control.HasField("first"):
            self.inbox.begin(control.first)
        if control.HasField("message"):
            self.inbox.put_control(control.message)
            item = True
        elif control.HasField("end"):
            self.inbox.put_end(messages.totals(control.end))
            due, item = self.resume, True
        if control.HasField("backlog"):
            hungry = self._reading is not None and self._reading.waited
            due |= self.account.announced(control.backlog, control.spent, hungry=hungry) is not None
        if control.HasField("error"):
            error = messages.typed_error(control.error)
            self.fail(StreamBroken(error.message, remedy=error.remedy) if control.broken else error)
        if control.ping:
            self._scribe.soon(self._answer)
        elif due:
            self._scribe.soon(self._tell)
        self.finish()
        return item

    def _lead(self, reading: Reading, deadline: float) -> bool:
        """Read on the consumer's thread until there is something for it, or its time is up."""
        me = object()
        with self._deciding:  # else the keeper, just looking, may neither see this deadline nor be called for it
            self._leads_until[me] = deadline  # one each: who finds the lead taken must not end the leader's
            if self._nudge_at > deadline:
                self._nudge_at = deadline
                self._keeper.begin(self._nudge, deadline, self._nudge)
        try:
            return reading.lead(lambda: self.inbox.ready or time.monotonic() >= deadline)
        finally:
            del self._leads_until[me]

    def _nudge(self) -> None:
        """The keeper's, at the deadline of somebody who led. Most have left long before, so it knows only of the first.

        A consumer's time is up in the middle of a read: the answer to a ping ends that.
        """
        with self._deciding:
            self._nudge_at = until = min(list(self._leads_until.values()), default=math.inf)
            if until > time.monotonic():
                if until < math.inf:
                    self._keeper.begin(self._nudge, until, self._nudge)
                return
            self._nudge_at = math.inf
        self._scribe.soon(self._ask)
        asked, stream = time.monotonic(), self._stream

        def unanswered() -> None:
            if self._heard_at < asked and stream is not None:
                stream.abort()

        self._keeper.begin(unanswered, asked + ANSWER_WITHIN, unanswered)

    def _follow(self, reading: Reading | None, timeout: float) -> Found | None:
        """Wait for the inbox while another thread reads, or while there is no stream."""
        if reading is None:
            return self.inbox.take(timeout)
        me = object()
        reading.follow(me, leads=timeout >= LEAD_FROM)
        try:
            return self.inbox.take(timeout)
        finally:
            reading.unfollow(me)

    def _needs_reading(self) -> bool:
        return self._over or self.outbox.gate.hungry

    def look_for_credit(self) -> None:
        """A batch was sent: if credit runs low, see that the next grant is read before it is gone."""
        if self.outbox.gate.hungry:
            self._summon()

    def _summon(self) -> None:
        reading = self._reading
        if reading is not None:
            reading.summon()

    def _state(self) -> pb.ExchangeControl:
        you, self._you = self._you, ""
        return pb.ExchangeControl(granted=self.account.granted, held=self.inbox.held if self.resume else 0, you=you)
