"""Credit in bytes: who may send how much, and when more is granted. Values only: no I/O, no lock, no clock.

A sender may have sent INITIAL_CREDIT payload bytes before it hears anything, and `granted` bytes after that. Grants
are cumulative, per stream and never fall, so a late or repeated grant does no harm: the highest one counts.
Only payload costs credit. Control messages and empty batches always pass, so the end, an error or an abort can be
said at any time.

**The sender** (:class:`SendWindow`). A batch of n bytes goes out if n <= granted - sent. A batch larger than the
whole window would wait for ever, so it goes out alone: when everything before it has been granted again, which the
sender sees by `granted - sent` being back at `window`, the largest value it ever had.

**The receiver** (:class:`ReceiveWindow`, :class:`GrantPolicy`). Credit is given back for what was *consumed*
(written to disk, handed to the task), not for what arrived. `target` is how far granted may run ahead of consumed.
The rules, in their order:

1. *Coalesce.* A grant is due when it would give back at least half of the target, or, of a large one, WORTH and at
   least a quarter. A message per batch would double the traffic of small batches; waiting for the whole target would
   let the sender run dry. Half keeps one half under way while the other is granted (h2 and most HTTP/2 stacks do the
   same), if no more than that is under way: but gRPC and the sockets hold several MiB, so a sender of large batches
   had spent its window before the grant for the first half arrived (of a run's time it waited 17 %, now 4 %).
2. *Never leave a sender waiting for a grant that nothing will cause.* Once everything that arrived is consumed, no
   further arrival will make rule 1 fire, and the sender may be waiting with a batch larger than what is left. So a
   drained window is restored in full. This holds for every sender that keeps to docs/protocol.md. With `announced`
   both ends have agreed that the sender announces its backlog before it waits, and how much it had spent by then;
   then rule 2 acts only while the sender wants more than was granted, and a consumer that keeps up grants as seldom
   as a slow one. A sender that waits with UNANNOUNCED or less may do so in silence: so little of the target is left
   then that rule 1 brings a grant, and its receiver does without a message. In full means: to the
   target, and, where the target has shrunk (rule 4), to the backlog as far as it lies below `peak`, the largest
   credit there has been; for with such a backlog the sender may rightly wait until it has that much.
3. *Grow* (`elastic` only). A window starts at INITIAL_CREDIT; a backlog larger than the target doubles it, and a
   batch makes it at least two batches (one under way while the other is consumed), up to `maximum`. With `announced`
   so does a sender that begins to wait while the receiver is `hungry` (it waits as well) and holds less than half of
   the target: then the window makes it wait, not the consumer. It does not grow above MOST_BATCHES batches by that, as
   large as they were since the last grant on average: a queue of more is delay, and one large batch among many small
   ones does not make the small ones worth a longer queue. Many idle streams then promise little, and one busy stream
   gets what its bandwidth and delay need; but behind a slow consumer no queue grows.
4. *Shrink* (`elastic` and `announced`). A grant to a sender that announces an empty backlog halves the target, down
   to INITIAL_CREDIT. Credit once given cannot be taken back, so a window shrinks as its credit is used. With every
   announcement both ends forget the peak, but for what the sender waits with (:meth:`SendWindow.idle`, `waits`):
   that is what makes the smaller window safe under rule 2.
5. *Under memory pressure no growth.* With `pressed`, credit is restored to what it was: up to the target if that can
   shrink, else up to the peak.
6. *Make room* (`announced`). While others wait for memory, whatever a stream does halves its target
   (:meth:`ReceiveWindow.smaller`). Streams that are always busy would keep new ones out for ever otherwise.

`charge` is what a stream must hold reserved of the memory budget: all that was granted or has arrived and is not
consumed, and never less than the target or the peak. Because the peak stays reserved, rule 2 never has to wait for
memory: streams that hold memory never wait for more of it, and so cannot deadlock over it. Growth is asked for
without waiting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from shuffle_api.errors import InvalidArgument

INITIAL_CREDIT = 1 << 20
"""Payload bytes a sender may send before the first grant (docs/protocol.md)."""

MOST_BATCHES = 16
"""So many batches keep any stream flowing; a window of more only makes the queue longer."""

UNANNOUNCED = INITIAL_CREDIT // MOST_BATCHES
"""Bytes with which a sender may wait without announcing it: no target is so small that rule 1 does not restore them."""

WORTH = 1 << 20
"""Bytes for which a grant is worth a message, whatever the window."""

DEFAULT_MAXIMUM = 8 << 20
"""Largest window, in bytes: 10 Gbit/s times 6 ms, and four batches of the usual 2 MiB."""


class SendWindow(NamedTuple):
    """What the sending end of one stream may send. All fields in payload bytes. A tuple: one is made for each batch.

    :ivar granted: highest grant received, cumulative.
    :ivar sent: sent on this stream so far.
    :ivar window: largest `available` there has been. Batches of at most half of it keep the stream flowing.
    """

    granted: int = INITIAL_CREDIT
    sent: int = 0
    window: int = INITIAL_CREDIT

    @property
    def available(self) -> int:
        """Credit left; below zero after a batch that was larger than the window."""
        return self.granted - self.sent

    def try_send(self, n: int) -> SendWindow | None:
        """The window after a batch of `n` bytes, or None: wait for a grant.

        :raises InvalidArgument: `n` is negative.
        """
        granted, sent, window = self
        available = granted - sent
        if _size(n) > available and n > 0 and not (n > window <= available):
            return None
        return SendWindow(granted, sent + n, window)

    def granted_to(self, granted: int) -> SendWindow:
        """The window after a grant. Grants are cumulative; one below an earlier one is late and changes nothing."""
        if granted <= self.granted:
            return self
        return SendWindow(granted, self.sent, max(self.window, granted - self.sent))

    def idle(self) -> SendWindow:
        """The window of a sender that announces an empty backlog to an `announced` receiver: the peak is forgotten."""
        return SendWindow(self.granted, self.sent, INITIAL_CREDIT)

    def waits(self, backlog: int) -> SendWindow:
        """The window of a sender that announces to an `announced` receiver what it waits with: all of the peak above
        that is forgotten."""
        granted, sent, window = self
        return SendWindow(granted, sent, min(window, max(INITIAL_CREDIT, granted - sent, _size(backlog))))


@dataclass(frozen=True, slots=True)
class GrantPolicy:
    """How a receiver grants.

    :ivar maximum: largest target in bytes; at least INITIAL_CREDIT.
    :ivar elastic: the target starts at INITIAL_CREDIT and follows the need; without, it is always `maximum`.
    :ivar announced: the sender announces its backlog before it waits, and forgets its peak when that is empty.
    :raises InvalidArgument: `maximum` is too small.
    """

    maximum: int = DEFAULT_MAXIMUM
    elastic: bool = False
    announced: bool = False

    def __post_init__(self) -> None:
        if self.maximum < INITIAL_CREDIT:
            raise InvalidArgument(
                f"a credit window of {self.maximum} bytes",
                remedy=f"give at least {INITIAL_CREDIT}: every sender may send that before its first grant",
            )


class ReceiveWindow(NamedTuple):
    """What the receiving end of one stream has granted, got and consumed. Sizes in payload bytes. A tuple, as above.

    After every :meth:`received` and :meth:`consumed` the owner asks :meth:`grant`, and sends what it answers.

    :ivar granted: highest grant given, cumulative.
    :ivar arrived: payload that has arrived.
    :ivar released: payload that has been consumed.
    :ivar peak: largest `granted - arrived` there has been; if `announced` since the sender's last announcement, or
        what it said it waits with.
    :ivar target: how far `granted` may run ahead of `released`, if `elastic`.
    :ivar wanted: the bytes the sender would have sent, cumulative, had it not to wait; as it announced last.
    :ivar idle: it announced an empty backlog last.
    :ivar starved: since the last grant it began to wait though the receiver was hungry.
    :ivar largest: largest batch since the last grant.
    :ivar batches: batches since the last grant.
    :ivar before: `arrived` at the last grant.
    """

    policy: GrantPolicy = GrantPolicy()
    granted: int = INITIAL_CREDIT
    arrived: int = 0
    released: int = 0
    peak: int = INITIAL_CREDIT
    target: int = INITIAL_CREDIT
    wanted: int = 0
    idle: bool = False
    starved: bool = False
    largest: int = 0
    batches: int = 0
    before: int = 0

    @property
    def backlog(self) -> int:
        """What is left of the backlog that the sender announced last."""
        return max(0, self.wanted - self.arrived)

    @property
    def charge(self) -> int:
        """Bytes of the memory budget that this stream must hold reserved."""
        return max(self.granted - self.released, self.arrived - self.released, self.peak, self._restorable)

    def received(
        self,
        n: int,
        backlog: int | None = None,
        *,
        spent: int | None = None,
        hungry: bool = False,
        largest: int | None = None,
        batches: int = 1,
    ) -> ReceiveWindow:
        """The window after a batch of `n` bytes (0 for a control message) that announced `backlog` (None: nothing).

        A batch above the credit is legal when at least INITIAL_CREDIT was left: the sender's window may be no larger.

        :param spent: credit that the sender had spent when it announced; None: what has arrived. Where several threads
            send, batches that have their credit may still arrive after an announcement that does not count them.
        :param hungry: the receiver waited for what came.
        :param largest: the largest of several batches that add up to `n`, all within the credit; None: it is one.
        :param batches: how many.

        :raises InvalidArgument: the sender overspent its credit, or `n` or `backlog` is negative.
        """
        policy, granted, earlier, released, peak, target, wanted, idle, starved, largest_yet, batches_yet, before = self
        available = granted - earlier
        if _size(n) > available and n > 0 and available < INITIAL_CREDIT:
            raise InvalidArgument(
                f"a batch of {n} payload bytes came with {available} bytes of credit left "
                f"({granted} granted, {earlier} received before it)",
                remedy="send at most what PutReply.granted allows; a batch above the window only when nothing is out",
            )
        arrived = earlier + n
        if policy.announced and backlog is not None:
            peak = min(peak, max(INITIAL_CREDIT, granted - arrived, backlog))
        if backlog is not None:
            wanted, idle = (arrived if spent is None else _size(spent)) + _size(backlog), backlog == 0
            starved |= hungry and not idle and policy.announced and 2 * (arrived - released) < target
        largest_yet = max(largest_yet, n if largest is None else largest)
        batches_yet += batches if n else 0
        return ReceiveWindow(
            policy, granted, arrived, released, peak, target, wanted, idle, starved, largest_yet, batches_yet, before
        )

    def consumed(self, n: int) -> ReceiveWindow:
        """The window after `n` bytes that had arrived have left memory.

        :raises InvalidArgument: that is more than is held, or negative.
        """
        policy, granted, arrived, released, peak, target, wanted, idle, starved, largest, batches, before = self
        if _size(n) > arrived - released:
            raise InvalidArgument(f"{n} bytes consumed of {arrived - released} held", remedy="consume each batch once")
        return ReceiveWindow(
            policy, granted, arrived, released + n, peak, target, wanted, idle, starved, largest, batches, before
        )

    def grant(self, *, pressed: bool = False) -> ReceiveWindow | None:
        """The window with more credit granted (send its `granted`), or None: nothing is due.

        :param pressed: memory is short; the `charge` will not rise.
        """
        target = self._next_target()
        if pressed:
            target = min(target, self._restorable)
        goal = self.released + target
        if self._may_be_stuck():
            goal = max(goal, self.released + min(self.peak, self.backlog))
            due = goal > self.granted
        else:
            gain = goal - self.granted
            due = 2 * gain >= target or (gain >= WORTH and 4 * gain >= target)
        if not due:
            return None
        return self._replace(
            granted=goal,
            peak=max(self.peak, goal - self.arrived),
            target=target,
            starved=False,
            largest=0,
            batches=0,
            before=self.arrived,
        )

    def smaller(self) -> ReceiveWindow:
        """The window whose target is half as large, for others wait for memory (rule 6)."""
        if not self.policy.announced:  # its sender may wait in silence for a batch as large as the peak
            return self
        return self._replace(target=max(INITIAL_CREDIT, self.target // 2))

    @property
    def _restorable(self) -> int:
        """A window of this size can be restored without asking for memory: it stays reserved."""
        return self.target if self.policy.elastic and self.policy.announced else self.peak

    @property
    def _holds_few(self) -> bool:
        """The target is below MOST_BATCHES batches of the size that they had since the last grant, on average."""
        return self.batches * self.target < MOST_BATCHES * (self.arrived - self.before)

    def _may_be_stuck(self) -> bool:
        """Nothing is held whose consumption would bring a grant, and the sender may be waiting for one."""
        drained = self.arrived == self.released
        return drained and (not self.policy.announced or self.wanted > self.granted)

    def _next_target(self) -> int:
        policy = self.policy
        if not policy.elastic:
            return policy.maximum
        target = self.target
        if self.backlog > target or (self.starved and self._holds_few):
            target *= 2
        elif policy.announced and self.idle:
            target //= 2
        return min(policy.maximum, max(INITIAL_CREDIT, target, 2 * self.largest))


def _size(n: int) -> int:
    if n < 0:
        raise InvalidArgument(f"a size of {n} bytes", remedy="sizes are not negative")
    return n
