"""One byte budget per process: everything that holds payload reserves its bytes here first.

* Waiting is first come, first served: a large reservation is never overtaken by small ones for ever.
* Reservations may name their owner, an application. Then those of the owner with the smallest share are served first,
  and no owner is given the last part of the budget (FOR_OTHERS), which another one finds free when it comes. Who waits
  only because of that bound holds up nobody else.
* What an owner has reserved and does not use (a sender that sends nothing has its credit all the same) is *lent* after
  IDLE_SECONDS, while others wait: it does not count as used until its holder has something in hand again. Credit cannot
  be taken back, so more may be in use than the budget then, by what was lent: MOST_LENT at most.
* What waits for a peer to read it (`outgoing`) takes at most a part of the budget (FOR_OUTGOING): such a peer may wait
  in its turn for what others are to send, so that must not wait for it. Its holder is asked to give up (`stalled`)
  what has stood still for STALLED_SECONDS, while others wait.
* Every wait has a deadline; Overloaded then says who wanted what from which budget.
* A reservation larger than the whole budget is let through when nothing else is reserved: one huge
  block is slow, never impossible.
* Two watermarks with a gap, so that the pool does not flap. From `high` on it is `pressed` until it falls to
  `low`: credit windows do not grow then (credits.py, rule 5), and the rest is left for new streams.
* A reservation that is held already grows only without waiting (`try_resize`), or to account for bytes that are
  there already (`cover`). Nobody waits for memory while holding some, so nobody deadlocks over it.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self
from weakref import WeakSet

from shuffle_api.errors import InvalidArgument, Overloaded, ShuttingDown
from shuffle_transport.shares import NOBODY, Owner, Shares

IDLE_SECONDS = 5.0
"""A reservation of which nothing was in use for so long is lent to those who wait."""

MOST_LENT = 64 << 20
"""Bytes that are lent at once: by so many more may be in use than the budget."""

STALLED_SECONDS = 30.0
"""Something outgoing that has not moved for so long is in the way of those who wait."""


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """A pool at one moment. Sizes in bytes."""

    budget: int
    used: int
    peak: int  # most ever used; above the budget only by `cover` or one reservation larger than it
    reservations: int  # open ones
    waiting: int  # callers of reserve that wait now
    waiting_bytes: int  # what they wait for
    oldest_wait_seconds: float  # how long the first of them has waited
    stall_seconds: float  # all waits that have ended, summed
    refused: int  # waits that ended at their deadline
    pressed: bool
    owners: int = 0  # named ones that have something reserved
    largest_share: int = 0  # of a named owner
    lent: int = 0  # reserved, not in use for a while, and given to others meanwhile
    outgoing: int = 0  # of what is used, what waits for a peer to read it
    stalled: int = 0  # times that a holder was asked to give up what nobody read


@dataclass(eq=False, slots=True)
class _PoolWaiter:
    size: int
    since: float
    owner: Owner
    stalled: Callable[[], object] | None
    admitted: Reservation | None = None


@dataclass(slots=True)
class _WaitCounters:
    """What waits have come to so far."""

    seconds: float = 0.0  # of those that have ended, summed
    refused: int = 0
    gave_up: int = 0  # holders that were asked to give up what nobody read


class BufferPool:
    """A budget of bytes, shared by all threads.

    :param budget_bytes: what may be reserved in all.
    :param high: part of the budget from which on the pool is `pressed`.
    :param low: part of the budget down to which it stays so.
    :raises InvalidArgument: budget below 1, or not 0 < low <= high <= 1.
    """

    def __init__(self, budget_bytes: int, *, high: float = 0.75, low: float = 0.6) -> None:
        if budget_bytes < 1 or not 0 < low <= high <= 1:
            raise InvalidArgument(
                f"a pool of {budget_bytes} bytes with watermarks {low} and {high}",
                remedy="give a positive budget and 0 < low <= high <= 1",
            )
        self.budget = budget_bytes
        self._high, self._low = int(budget_bytes * high), int(budget_bytes * low)
        self._changed = threading.Condition()
        self._queues: dict[Owner, deque[_PoolWaiter]] = {}  # none of them empty
        self._abandoned: deque[tuple[int, Owner, bool]] = deque()  # reservations that were garbage collected
        self._shares = Shares(budget_bytes)  # what is lent counts
        self._named: WeakSet[Reservation] = WeakSet()
        self._waits = _WaitCounters()
        self._used = self._peak = self._open = self._lent = 0
        self._pressed = self._closed = False

    def reserve(
        self, n: int, timeout: float, owner: Owner = NOBODY, *, stalled: Callable[[], object] | None = None
    ) -> Reservation:
        """Reserve `n` bytes, waiting up to `timeout` seconds in turn.

        :param stalled: called by `reclaim` when the reservation is outgoing and in the way; it is to be closed soon.
        :raises Overloaded: no room in time.
        :raises ShuttingDown: the pool was closed.
        :raises InvalidArgument: `n` is negative.
        """
        with self._changed:
            if not self._queues and not self._abandoned and not self._closed and self._fits(_size(n), owner):
                return self._open_new(n, owner, stalled)
            waiter = _PoolWaiter(_size(n), time.monotonic(), owner, stalled)
            self._queues.setdefault(owner, deque()).append(waiter)
            self._admit()
            if waiter.admitted is None:
                self._wait(waiter, timeout)
            if waiter.admitted is not None:
                return waiter.admitted
            if self._closed:
                raise ShuttingDown(f"the buffer pool was closed while {n} bytes were waited for")
            self._waits.refused += 1
            raise Overloaded(self._refusal(n, owner, timeout), remedy="write or read less at once, or raise --memory")

    def try_reserve(self, n: int, owner: Owner = NOBODY) -> Reservation | None:
        """Reserve `n` bytes now, or None. Never overtakes somebody who waits.

        :raises ShuttingDown: the pool was closed.
        """
        with self._changed:
            self._settle()
            if self._closed:
                raise ShuttingDown(f"the buffer pool was closed; {n} bytes were wanted")
            if self.waited_for or not self._fits(_size(n), owner):
                return None
            return self._open_new(n, owner)

    def reclaim(self) -> None:
        """Make room for those who wait, out of what is not in use. To be called several times a second."""
        with self._changed:
            if not self.waited_for and not any(owner.outgoing for owner in self._queues):
                return
            now = time.monotonic()
            for each in sorted(self._named, key=lambda each: each.touched):
                if each.idle and now - each.touched >= IDLE_SECONDS:
                    self._lend(each)
            stalled = [each for each in self._named if each.stalled and now - each.touched >= STALLED_SECONDS]
            most = max((self._shares.of(each.owner) for each in stalled), default=0)
            stalled = [each for each in stalled if self._shares.of(each.owner) == most]
            for each in stalled:
                each.touched = now
            self._waits.gave_up += len(stalled)
            self._admit()
        for each in stalled:
            if each.stalled is not None:
                each.stalled()

    @property
    def pressed(self) -> bool:
        """Memory is short, or somebody waits for it: do not ask for more than is needed to go on."""
        with self._changed:
            self._settle()
            return self._pressed or self.waited_for

    @property
    def waited_for(self) -> bool:
        """Somebody waits for memory: give back what can be spared."""
        return bool(self._queues) and self._next() is not None

    @property
    def used(self) -> int:
        """Bytes that are reserved now."""
        return self._used

    def statistics(self) -> PoolStatistics:
        with self._changed:
            self._settle()
            waiting = [waiter for queue in self._queues.values() for waiter in queue]
            return PoolStatistics(
                budget=self.budget,
                used=self._used,
                peak=self._peak,
                reservations=self._open,
                waiting=len(waiting),
                waiting_bytes=sum(waiter.size for waiter in waiting),
                oldest_wait_seconds=max((time.monotonic() - waiter.since for waiter in waiting), default=0.0),
                stall_seconds=self._waits.seconds,
                refused=self._waits.refused,
                pressed=self._pressed,
                owners=self._shares.owners,
                largest_share=self._shares.largest,
                lent=self._lent,
                outgoing=self._shares.outgoing,
                stalled=self._waits.gave_up,
            )

    def close(self) -> None:
        """Refuse from now on; threads that wait get ShuttingDown. Open reservations stay valid. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _resize(self, held: Reservation, new: int, *, forced: bool) -> bool:
        with self._changed:
            self._settle()
            grows = new - held.size
            if grows > 0 and not forced and (self._closed or self.waited_for or not self._grows(grows, held.owner)):
                return False
            self._take_back(held)
            self._take(grows, held.owner)
            held._size = new
            self._admit()
            return True

    def _use(self, held: Reservation) -> None:
        with self._changed:
            self._take_back(held)

    def _release(self, held: Reservation) -> None:
        with self._changed:
            self._drop(held.size, held.owner, held.lent)
            self._admit()

    def _abandon(self, size: int, owner: Owner, lent: bool) -> None:
        # From __del__, which may run inside any of these methods: no lock, no arithmetic here.
        self._abandoned.append((size, owner, lent))

    # The rest is called with the lock held.

    def _settle(self) -> None:
        if self._abandoned:
            self._admit()

    def _admit(self) -> None:
        while self._abandoned:
            self._drop(*self._abandoned.popleft())
        admitted = False
        while self._queues and not self._closed:
            waiter = self._next()
            if waiter is None or not self._fits(waiter.size, waiter.owner):
                break
            self._leave(waiter)
            waiter.admitted = self._open_new(waiter.size, waiter.owner, waiter.stalled)
            admitted = True
        if admitted:
            self._changed.notify_all()

    def _next(self) -> _PoolWaiter | None:
        """Who is served first; None: those who wait do so because of their own bounds."""
        first = [queue[0] for owner, queue in self._queues.items() if self._shares.may_take(queue[0].size, owner)]
        if len(first) < 2:
            return first[0] if first else None
        return min(first, key=lambda waiter: (self._shares.of(waiter.owner), waiter.since))

    def _wait(self, waiter: _PoolWaiter, timeout: float) -> None:
        try:
            self._changed.wait_for(lambda: waiter.admitted is not None or self._closed, timeout)
        finally:
            self._waits.seconds += time.monotonic() - waiter.since
            if waiter.admitted is None:
                self._leave(waiter)
                self._admit()

    def _leave(self, waiter: _PoolWaiter) -> None:
        queue = self._queues[waiter.owner]
        queue.remove(waiter)
        if not queue:
            del self._queues[waiter.owner]

    def _open_new(self, n: int, owner: Owner, stalled: Callable[[], object] | None = None) -> Reservation:
        self._take(n, owner)
        self._open += 1
        reservation = Reservation(self, n, owner, stalled)
        if owner.name:
            self._named.add(reservation)
        return reservation

    def _fits(self, n: int, owner: Owner) -> bool:
        return self._grows(n, owner) or self._used == 0

    def _grows(self, n: int, owner: Owner) -> bool:
        return self._used + n <= self.budget and self._shares.may_take(n, owner)

    def _lend(self, held: Reservation) -> None:
        if not held.lent and self._lent + held.size <= MOST_LENT:
            held.lent = True
            self._lent += held.size
            self._used -= held.size

    def _take_back(self, held: Reservation) -> None:
        if held.lent:
            held.lent = False
            self._lent -= held.size
            self._used += held.size

    def _drop(self, size: int, owner: Owner, lent: bool) -> None:
        self._open -= 1
        if lent:
            self._lent -= size
            self._used += size
        self._take(-size, owner)

    def _take(self, n: int, owner: Owner) -> None:
        self._used += n
        self._peak = max(self._peak, self._used)
        self._pressed = self._used >= self._high or (self._pressed and self._used > self._low)
        self._shares.take(n, owner)

    def _refusal(self, n: int, owner: Owner, timeout: float) -> str:
        others = sum(map(len, self._queues.values()))
        message = f"no room for {n} bytes within {timeout:g} s: {self._used} of {self.budget} are in use, "
        if owner.name:
            message += f"{self._shares.of(owner)} of them by application {owner.name}, "
        return f"{message}{others} others wait"


class Reservation:
    """Bytes of a pool's budget; a context manager. Closing it gives them back, once.

    Belongs to one thread at a time.
    """

    def __init__(
        self, pool: BufferPool, size: int, owner: Owner = NOBODY, stalled: Callable[[], object] | None = None
    ) -> None:
        """
        :ivar idle: none of it is in use. Set by the holder; it is so while the holder only waits for its peer to send.
        :ivar touched: when it was last in use (time.monotonic).
        :ivar lent: it does not count as used, for others wait.
        """
        self._pool, self._size, self._closed = pool, size, False
        self.owner, self.stalled = owner, stalled
        self.idle = self.lent = False
        self.touched = time.monotonic() if owner.name else 0.0

    @property
    def size(self) -> int:
        """Bytes reserved."""
        return self._size

    def try_resize(self, n: int) -> bool:
        """Hold `n` bytes from now on, if there is room and nobody waits; smaller always succeeds.

        :raises InvalidArgument: `n` is negative, or the reservation is closed.
        """
        return self._resize(n, forced=False)

    def cover(self, n: int) -> None:
        """It is in use. Hold at least `n` bytes from now on, room or not: for bytes that are in memory already.

        :raises InvalidArgument: as `try_resize`.
        """
        if self.owner.name:
            self.touched = time.monotonic()
            if self.lent:
                self._pool._use(self)
        if n > self._size:
            self._resize(n, forced=True)

    def _resize(self, n: int, *, forced: bool) -> bool:
        if self._closed:
            raise InvalidArgument("a closed reservation cannot be resized", remedy="reserve again")
        return _size(n) == self._size or self._pool._resize(self, n, forced=forced)

    def close(self) -> None:
        """Give the bytes back. Idempotent."""
        if not self._closed:
            self._closed = True
            self._pool._release(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._closed:
            self._closed = True
            self._pool._abandon(self._size, self.owner, self.lent)
            warnings.warn(f"unclosed reservation of {self._size} bytes", ResourceWarning, stacklevel=1, source=self)


def _size(n: int) -> int:
    if n < 0:
        raise InvalidArgument(f"a reservation of {n} bytes", remedy="sizes are not negative")
    return n
