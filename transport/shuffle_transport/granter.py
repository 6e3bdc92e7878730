"""The receiving end of one stream's credit: a ReceiveWindow whose promises are backed by the memory budget.

The first credit is reserved before the stream is read (that may wait, in turn, holding nothing); more is granted
only if the pool has room at once. See credits.py for the rules and for why this cannot deadlock.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from shuffle_transport.credits import DEFAULT_MAXIMUM, INITIAL_CREDIT, GrantPolicy, ReceiveWindow
from shuffle_transport.pool import BufferPool
from shuffle_transport.shares import NOBODY, Owner


@dataclass(frozen=True, slots=True)
class GranterStatistics:
    """A receiving window at one moment. Sizes in payload bytes."""

    granted: int  # cumulative
    received: int
    consumed: int
    held: int  # received and not consumed
    target: int  # how far grants may run ahead of what is consumed
    backlog: int  # what is left of what the sender announced last
    reserved: int  # of the pool's budget
    grants: int  # grants given so far


class Outlook(NamedTuple):
    """What can be expected of a stream's sender.

    :ivar available: credit that it has left, in bytes; below zero after a batch larger than the window.
    :ivar target: how far grants may run ahead of what is consumed, in bytes.
    :ivar wanted: it waits for more than was granted.
    """

    available: int
    target: int
    wanted: bool


class Granter:
    """Grants credit to the sender of one stream, within `pool`'s budget; a context manager. Thread-safe.

    `received` and `consumed` return the cumulative grant to send to the peer, or None. They may be called by two
    threads; grants are cumulative, so it does no harm when they are sent in another order.

    :param pool: where the window is reserved.
    :param timeout: seconds to wait for the first reservation.
    :param maximum: largest window in bytes.
    :param announced: the sender announces its backlog before it waits (see credits.py).
    :param owner: whose memory it is.
    :raises Overloaded, ShuttingDown: no room for the first credit in time; the pool was closed.
    :raises InvalidArgument: `maximum` is below INITIAL_CREDIT.
    """

    def __init__(
        self,
        pool: BufferPool,
        timeout: float,
        *,
        maximum: int = DEFAULT_MAXIMUM,
        announced: bool = False,
        owner: Owner = NOBODY,
    ) -> None:
        self._pool = pool
        self._window = ReceiveWindow(GrantPolicy(maximum, elastic=True, announced=announced))
        self._lock = threading.Lock()
        self._grants = 0
        self._reservation = pool.reserve(self._window.charge, timeout, owner)
        self._reservation.idle = True

    def received(
        self, n: int, backlog: int | None = None, *, spent: int | None = None, hungry: bool = False
    ) -> int | None:
        """A batch of `n` payload bytes arrived (0: a control message); `backlog` is what it announced, if anything.

        :param spent, hungry: see `ReceiveWindow.received`.
        :raises InvalidArgument: the sender overspent its credit.
        """
        with self._lock:
            return self._adopt(self._window.received(n, backlog, spent=spent, hungry=hungry))

    def consumed(self, n: int) -> int | None:
        """`n` bytes that had been received have left memory.

        :raises InvalidArgument: so many are not held.
        """
        with self._lock:
            return self._adopt(self._window.consumed(n))

    def moved(self, arrived: int, batches: int, largest: int, consumed: int) -> int | None:
        """So many batches of `arrived` bytes came, the largest of `largest`, and then `consumed` bytes were given back:
        as `received` and `consumed`, for whoever adds up small amounts. (Several batches only within the credit.)

        :raises InvalidArgument: as those.
        """
        with self._lock:
            return self._adopt(self._window.received(arrived, largest=largest, batches=batches).consumed(consumed))

    def limit(self, maximum: int) -> None:
        """Let the window be at most `maximum` bytes (INITIAL_CREDIT at least) from the next grant on."""
        with self._lock:
            policy = replace(self._window.policy, maximum=max(INITIAL_CREDIT, maximum))
            self._window = self._window._replace(policy=policy)

    @property
    def granted(self) -> int:
        """The cumulative grant, for replies that are sent for another reason."""
        with self._lock:
            return self._window.granted

    @property
    def outlook(self) -> Outlook:
        """What can be expected now."""
        with self._lock:
            window = self._window
            return Outlook(window.granted - window.arrived, window.target, window.wanted > window.granted)

    def statistics(self) -> GranterStatistics:
        with self._lock:
            window = self._window
            return GranterStatistics(
                granted=window.granted,
                received=window.arrived,
                consumed=window.released,
                held=window.arrived - window.released,
                target=window.target,
                backlog=window.backlog,
                reserved=self._reservation.size,
                grants=self._grants,
            )

    def close(self) -> None:
        """Give the reserved bytes back. Idempotent."""
        with self._lock:
            self._reservation.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _adopt(self, window: ReceiveWindow) -> int | None:
        # Bytes beyond the credit (a batch larger than the window) are here already: they count, room or not.
        self._reservation.cover(window.charge)
        self._reservation.idle = window.arrived == window.released
        if self._pool.waited_for:
            window = window.smaller()
        granting = window.grant()
        if granting is not None and (self._pool.pressed or not self._reservation.try_resize(granting.charge)):
            granting = window.grant(pressed=True)
        self._window = granting or window
        self._reservation.try_resize(self._window.charge)
        if granting is None:
            return None
        self._grants += 1
        return granting.granted
