"""One byte budget per process: everything that holds payload reserves its bytes here first.

* Waiting is first come, first served: a large reservation is never overtaken by small ones for ever.
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
from dataclasses import dataclass
from typing import Self

from shuffle_api.errors import InvalidArgument, Overloaded, ShuttingDown


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


@dataclass(eq=False, slots=True)
class _Waiter:
    size: int
    since: float
    admitted: Reservation | None = None


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
        self._queue: deque[_Waiter] = deque()
        self._abandoned: deque[int] = deque()  # sizes of reservations that were garbage collected
        self._used = self._peak = self._open = self._refused = 0
        self._stalled = 0.0
        self._pressed = self._closed = False

    def reserve(self, n: int, timeout: float) -> Reservation:
        """Reserve `n` bytes, waiting up to `timeout` seconds in turn.

        :raises Overloaded: no room in time.
        :raises ShuttingDown: the pool was closed.
        :raises InvalidArgument: `n` is negative.
        """
        with self._changed:
            waiter = _Waiter(_size(n), time.monotonic())
            self._queue.append(waiter)
            self._admit()
            if waiter.admitted is None:
                self._wait(waiter, timeout)
            if waiter.admitted is not None:
                return waiter.admitted
            if self._closed:
                raise ShuttingDown(f"the buffer pool was closed while {n} bytes were waited for")
            self._refused += 1
            raise Overloaded(
                f"no room for {n} bytes within {timeout:g} s: {self._used} of {self.budget} are in use, "
                f"{len(self._queue)} others wait"
            )

    def try_reserve(self, n: int) -> Reservation | None:
        """Reserve `n` bytes now, or None. Never overtakes somebody who waits.

        :raises ShuttingDown: the pool was closed.
        """
        with self._changed:
            self._settle()
            if self._closed:
                raise ShuttingDown(f"the buffer pool was closed; {n} bytes were wanted")
            if self._queue or not self._fits(_size(n)):
                return None
            return self._open_new(n)

    @property
    def pressed(self) -> bool:
        """Memory is short, or somebody waits for it: do not ask for more than is needed to go on."""
        with self._changed:
            self._settle()
            return self._pressed or self.waited_for

    @property
    def waited_for(self) -> bool:
        """Somebody waits for memory: give back what can be spared."""
        return bool(self._queue)

    def statistics(self) -> PoolStatistics:
        with self._changed:
            self._settle()
            return PoolStatistics(
                budget=self.budget,
                used=self._used,
                peak=self._peak,
                reservations=self._open,
                waiting=len(self._queue),
                waiting_bytes=sum(waiter.size for waiter in self._queue),
                oldest_wait_seconds=time.monotonic() - self._queue[0].since if self._queue else 0.0,
                stall_seconds=self._stalled,
                refused=self._refused,
                pressed=self._pressed,
            )

    def close(self) -> None:
        """Refuse from now on; whoever waits gets ShuttingDown. Open reservations stay valid. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _resize(self, old: int, new: int, *, forced: bool) -> bool:
        with self._changed:
            self._settle()
            if new > old and not forced and (self._closed or self._queue or self._used + new - old > self.budget):
                return False
            self._take(new - old)
            self._admit()
            return True

    def _release(self, size: int) -> None:
        with self._changed:
            self._open -= 1
            self._take(-size)
            self._admit()

    def _abandon(self, size: int) -> None:
        # From __del__, which may run inside any of these methods: no lock, no arithmetic here.
        self._abandoned.append(size)

    # The rest is called with the lock held.

    def _settle(self) -> None:
        if self._abandoned:
            self._admit()

    def _admit(self) -> None:
        while self._abandoned:
            self._open -= 1
            self._take(-self._abandoned.popleft())
        admitted = False
        while self._queue and not self._closed and self._fits(self._queue[0].size):
            waiter = self._queue.popleft()
            waiter.admitted = self._open_new(waiter.size)
            admitted = True
        if admitted:
            self._changed.notify_all()

    def _wait(self, waiter: _Waiter, timeout: float) -> None:
        try:
            self._changed.wait_for(lambda: waiter.admitted is not None or self._closed, timeout)
        finally:
            self._stalled += time.monotonic() - waiter.since
            if waiter.admitted is None:
                self._queue.remove(waiter)
                self._admit()

    def _open_new(self, n: int) -> Reservation:
        self._take(n)
        self._open += 1
        return Reservation(self, n)

    def _fits(self, n: int) -> bool:
        return self._used + n <= self.budget or self._used == 0

    def _take(self, n: int) -> None:
        self._used += n
        self._peak = max(self._peak, self._used)
        self._pressed = self._used >= self._high or (self._pressed and self._used > self._low)


class Reservation:
    """Bytes of a pool's budget; a context manager. Closing it gives them back, once.

    Belongs to one thread at a time.
    """

    def __init__(self, pool: BufferPool, size: int) -> None:
        self._pool, self._size, self._closed = pool, size, False

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
        """Hold at least `n` bytes from now on, room or not: for bytes that are in memory already.

        :raises InvalidArgument: as `try_resize`.
        """
        if n > self._size:
            self._resize(n, forced=True)

    def _resize(self, n: int, *, forced: bool) -> bool:
        if self._closed:
            raise InvalidArgument("a closed reservation cannot be resized", remedy="reserve again")
        if _size(n) != self._size and not self._pool._resize(self._size, n, forced=forced):
            return False
        self._size = n
        return True

    def close(self) -> None:
        """Give the bytes back. Idempotent."""
        if not self._closed:
            self._closed = True
            self._pool._release(self._size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._closed:
            self._closed = True
            self._pool._abandon(self._size)
            warnings.warn(f"unclosed reservation of {self._size} bytes", ResourceWarning, stacklevel=1, source=self)


def _size(n: int) -> int:
    if n < 0:
        raise InvalidArgument(f"a reservation of {n} bytes", remedy="sizes are not negative")
    return n
