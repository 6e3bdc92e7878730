"""The one class that waits for credit.

The rules are :class:`~shuffle_transport.credits.SendWindow`'s; this adds a lock, a deadline and the order of those who
wait. The writing thread calls `acquire` before each batch, the thread that reads replies calls `granted`, and
any thread that finds the stream broken calls `fail`. The lock guards decisions only: announcements are sent outside of
it. A waiting thread may read the replies itself (`acquire`'s `read`): then no thread has to wake another for a grant.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from shuffle_api.errors import DeadlineExceeded, ShuffleError, StreamBroken
from shuffle_transport.credits import UNANNOUNCED, SendWindow

Read = Callable[[Callable[[], bool], float], None]
"""Reads the peer's replies, or has another thread do so: called with the condition to wait for (credit is there,
or the stream is broken) and until when (time.monotonic). May return early."""


@dataclass(frozen=True, slots=True)
class GateStatistics:
    """A gate at one moment. Sizes in payload bytes."""

    granted: int  # cumulative
    sent: int
    available: int  # credit left; below zero after a batch larger than the window
    window: int  # largest credit there has been
    waiting: int  # callers of acquire that wait now
    backlog: int  # what they wait with, and what they said stands behind it
    oldest_wait_seconds: float
    waits: int  # waits so far
    stall_seconds: float  # waits that have ended, summed


@dataclass(eq=False, slots=True)
class _CreditWaiter:
    size: int
    queued: int
    since: float


class CreditGate:
    """Lets batches of one stream pass while there is credit, in the order in which they came.

    :param peer: who grants, for error messages ("worker w1 at 10.0.0.1:9000, map 3 attempt 0").
    :param announce: sends the peer a backlog in bytes, in stream order; called by the thread that starts to wait, if
        more than UNANNOUNCED waits.
    :param shared: several threads send. Then `sent` says when a batch is on its way: a batch larger than the window
        waits for those before it, since the peer refuses whatever comes behind it and was not granted.
    """

    def __init__(self, peer: str, announce: Callable[[int], None] | None = None, *, shared: bool = False) -> None:
        self._peer, self._announce, self._shared = peer, announce, shared
        self._window = SendWindow()
        self._available = self._window.available  # what the window says, less what has passed since: see `_settle`
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        # Held while an announcement is made, so that they reach the peer in the order in which they were true.
        self._announcing = threading.Lock()
        self._queue: deque[_CreditWaiter] = deque()
        self._error: ShuffleError | None = None
        self._passed = self._sent = 0  # batches that have had their credit, and those of them that are on their way
        self._waits = 0
        self._stalled = 0.0

    def acquire(self, n: int, timeout: float, *, queued: int = 0, read: Read | None = None) -> None:
        """Take credit for a batch of `n` payload bytes, waiting up to `timeout` seconds for it.

        :param queued: bytes that stand behind this batch; announced along with it.
        :param read: see `Read`; else another thread reads the replies.
        :raises DeadlineExceeded: no credit in time; nothing is taken.
        :raises ShuffleError: what `fail` was given, or StreamBroken after `close`.
        :raises InvalidArgument: `n` is negative.
        """
        with self._lock:  # the condition's; this way costs a third, and mostly nobody waits
            self._check()
            if not self._queue and self._pass(n):
                return
            waiter = _CreditWaiter(n, queued, time.monotonic())
            self._queue.append(waiter)
            self._waits += 1
        try:
            self._announce_backlog()
            if read is not None:
                read(lambda: self._may_go(waiter), waiter.since + timeout)
            with self._changed:
                self._wait(waiter, timeout)
        finally:
            with self._changed:
                self._queue.remove(waiter)
                self._stalled += time.monotonic() - waiter.since
                self._changed.notify_all()

    def try_acquire(self, n: int) -> bool:
        """Take credit for a batch of `n` payload bytes if there is some and nobody waits before it.

        :raises ShuffleError, InvalidArgument: as `acquire`.
        """
        with self._lock:
            if self._error is not None:
                raise self._error.with_traceback(None)
            if self._queue:
                return False
            if 0 <= n <= self._available:
                self._available -= n
                self._passed += 1
                return True
            return self._pass(n)

    def granted(self, granted: int) -> None:
        """A grant came: payload bytes that may have been sent on this stream, cumulative."""
        with self._changed:
            self._settle()
            self._become(self._window.granted_to(granted))
            self._changed.notify_all()

    def idle(self) -> None:
        """Announce that nothing waits, so that the peer may shrink the window. Only where both ends agreed on that
        (`ReceiveWindow.announced`). Does nothing while somebody waits."""
        with self._announcing:
            with self._changed:
                if self._queue or self._error:
                    return
                self._settle()
                self._become(self._window.idle())
            if self._announce is not None:
                self._announce(0)

    def sent(self) -> None:
        """A batch that had its credit is on its way, or has broken the stream; if `shared`, once for each that passed.

        By one thread at a time: then it takes no lock unless somebody waits.
        """
        self._sent += 1
        if self._queue:  # who waits is in there before it looks, and looks with the lock
            with self._changed:
                if self._sent == self._passed:
                    self._changed.notify_all()

    def give_back(self, n: int) -> None:
        """What `acquire` took for a batch of `n` bytes was not spent: the batch was not sent, and `sent` not called."""
        with self._changed:
            self._available += n
            self._passed -= 1
            self._changed.notify_all()

    def fail(self, error: ShuffleError) -> None:
        """The stream is broken: threads that wait or come later get `error`. The first one counts."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def close(self) -> None:
        """The stream has ended; as `fail` with StreamBroken. Idempotent."""
        self.fail(StreamBroken(f"the stream to {self._peer} is closed"))

    @property
    def low(self) -> bool:
        """Less than half of the window is left: a grant should be under way."""
        return 2 * self._available < self._window.window

    @property
    def starved(self) -> bool:
        """Somebody waits for credit that has not come: the replies must be read."""
        if not self._queue:
            return False
        with self._lock:
            # Behind a thread that has credit already another may have none, and is not woken before the first has left.
            return len(self._queue) > 1 or not self._has(self._queue[0].size)

    @property
    def waiting(self) -> bool:
        """Somebody waits for credit, or has got it a moment ago."""
        return bool(self._queue)

    def announcement(self) -> tuple[int, int]:
        """What to announce now: bytes that wait, and the credit that is spent. If some do, it has to reach a peer with
        which it was agreed (`ReceiveWindow.announced`) before any later one: it forgets the largest window, as is done
        here."""
        with self._lock:
            self._settle()
            backlog = self._backlog()
            if backlog:
                self._become(self._window.waits(backlog))
            return backlog, self._window.sent

    def statistics(self) -> GateStatistics:
        with self._changed:
            self._settle()
            return GateStatistics(
                granted=self._window.granted,
                sent=self._window.sent,
                available=self._window.available,
                window=self._window.window,
                waiting=len(self._queue),
                backlog=self._backlog(),
                oldest_wait_seconds=time.monotonic() - self._queue[0].since if self._queue else 0.0,
                waits=self._waits,
                stall_seconds=self._stalled,
            )

    def _announce_backlog(self) -> None:
        if self._announce is None:
            return
        with self._announcing:
            with self._changed:
                backlog = self._backlog()
            if backlog > UNANNOUNCED:
                self._announce(backlog)

    def _may_go(self, waiter: _CreditWaiter) -> bool:
        with self._lock:
            return self._error is not None or (self._queue[0] is waiter and self._has(waiter.size))

    # The rest is called with the condition's lock held.

    def _wait(self, waiter: _CreditWaiter, timeout: float) -> None:
        def done() -> bool:
            return self._error is not None or (self._queue[0] is waiter and self._pass(waiter.size))

        done_in_time = self._changed.wait_for(done, timeout - (time.monotonic() - waiter.since))
        self._check()
        if done_in_time:
            return
        self._settle()
        raise DeadlineExceeded(
            f"{self._peer} granted no credit for a batch of {waiter.size} bytes within {timeout:g} s: "
            f"{self._window.sent} of {self._window.granted} granted bytes are sent"
        )

    def _check(self) -> None:
        if self._error is not None:
            raise self._error.with_traceback(None)

    def _settle(self) -> None:
        """Update the window for batches that passed by arithmetic alone: one for each batch takes a microsecond."""
        window = self._window
        if window.available != self._available:
            self._window = SendWindow(window.granted, window.granted - self._available, window.window)

    def _become(self, window: SendWindow) -> None:
        self._window, self._available = window, window.available

    def _has(self, n: int) -> bool:
        self._settle()
        return self._window.try_send(n) is not None

    def _pass(self, n: int) -> bool:
        self._settle()
        after = self._window.try_send(n)
        unsent = self._shared and self._passed > self._sent
        if after is None or (unsent and n > max(0, self._available)):
            return False
        self._become(after)
        self._passed += 1
        return True

    def _backlog(self) -> int:
        return sum(waiter.size + waiter.queued for waiter in self._queue)
