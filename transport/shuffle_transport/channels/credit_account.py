"""The receiving window of one channel, kept cheaply: small amounts are added up before the Granter gets them.

A Granter costs 5 us and more per call, twice per message: as much as all else for a message of one block. So
consumptions wait here until they add up to the amount for which a grant is due, or less, and arrivals until then. A
sender that waits for credit announces it, and from then on nothing is held back: no grant comes late.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from shuffle_api.errors import InvalidArgument, Overloaded, StreamBroken
from shuffle_transport.granter import Granter, GranterStatistics

PART = 4
"""Of the window, this part of what was consumed is gathered; a grant is due for as much, or a half."""
MAX_CONTROLS = 4 << 20
"""Bytes of control messages that may wait to be received, each counted as CONTROL_COST more than it has."""
CONTROL_COST = 16 << 10
"""Bytes: more than a short message takes of memory, so that there are at most 256."""


class CreditAccount:
    """Counts what arrived, what was taken, what was consumed. Thread-safe. Sizes in bytes.

    Methods that return an int or None return a grant to send.

    :param where: channel and peer, for errors.
    :param granter: closed by `close`.
    """

    def __init__(self, where: str, granter: Granter) -> None:
        self._where, self._granter = where, granter
        self._lock = threading.Lock()
        self._room, target, _ = granter.outlook  # the room: the least credit that the sender has
        self._gather = target // PART
        self._arrived = self._batches = self._largest = self._owed = 0  # not yet passed to the granter
        self._held = 0  # payload that was taken and not consumed
        self._controls = 0
        self._waiting = self._closed = False

    def arrived(self, cost: int) -> int | None:
        """A batch that takes `cost` of credit has arrived.

        :raises InvalidArgument: the sender overspent its credit.
        :raises StreamBroken: nobody will take it.
        """
        with self._lock:
            self._check_open()
            sum_ = self._arrived + cost
            if sum_ <= self._room and not self._waiting:
                self._arrived = sum_
                self._batches += 1
                if cost > self._largest:
                    self._largest = cost
                return None
            # Consumption is left to the consumer's thread, which settles it when it has added up.
            earlier = self._settle(0)
            self._arrived = self._largest = cost
            self._batches = 1
            return self._settle(0) or earlier

    def limit(self, maximum: int) -> None:
        """See `Granter.limit`."""
        self._granter.limit(maximum)

    def control(self, size: int) -> None:
        """A control message has arrived.

        :raises Overloaded: too many wait.
        :raises StreamBroken: nobody will take it.
        """
        with self._lock:
            self._check_open()
            self._controls += size + CONTROL_COST
            if self._controls > MAX_CONTROLS:
                raise Overloaded(
                    f"{self._where}: control messages of {self._controls} bytes wait to be received",
                    remedy="receive faster, or send fewer: control messages wait for no credit",
                )

    def announced(self, backlog: int, spent: int, *, hungry: bool) -> int | None:
        """The sender has spent so much credit and waits with so much more to spend, or (0) with nothing.

        :param hungry: this end waited for what came.
        :raises StreamBroken: it waits, and nobody will take it.
        """
        with self._lock:
            if backlog:
                self._check_open()
            if self._closed:
                return None
            earlier = self._settle(self._owed)
            self._waiting = True  # until it is known to wait no more
            return self._known(self._granter.received(0, backlog, spent=spent, hungry=hungry)) or earlier

    def took_control(self, size: int) -> None:
        """A control message was taken from the queue."""
        with self._lock:
            self._controls -= size + CONTROL_COST

    def took(self, payload: int, cost: int) -> int | None:
        """A batch was taken from the queue: gives its cost beside the payload back."""
        with self._lock:
            self._held += payload
            return self._give(cost - payload)

    def consumed(self, payload: int) -> int | None:
        """So much payload that was taken has left memory.

        :raises InvalidArgument: so much is not held.
        """
        with self._lock:
            if not 0 <= payload <= self._held and not self._closed:
                raise InvalidArgument(
                    f"{self._where}: {payload} bytes consumed, {self._held} are held", remedy="consume each batch once"
                )
            self._held -= payload
            return self._give(payload)

    @property
    def granted(self) -> int:
        """The cumulative grant."""
        return self._granter.granted

    def statistics(self) -> GranterStatistics:
        with self._lock:
            known = self._granter.statistics()
            held = known.held + self._arrived - self._owed
            return replace(
                known, received=known.received + self._arrived, consumed=known.consumed + self._owed, held=held
            )

    def close(self) -> int | None:
        """Nobody will take any more: gives the reservation back. Idempotent.

        And the credit of all that is held: a sender that waits for some shall send, and be told so.
        """
        with self._lock:
            if self._closed:
                return None
            self._closed = True
            self._owed = self._granter.statistics().held + self._arrived
            grant = self._settle(self._owed)
            self._granter.close()
            return grant

    # With the lock held.

    def _check_open(self) -> None:
        if self._closed:
            raise StreamBroken("nobody receives any more", remedy="the other end has closed, or its handler returned")

    def _give(self, n: int) -> int | None:
        if self._closed:
            return None  # all of it has been given back
        self._owed += n
        if self._owed < self._gather and not self._waiting:
            return None
        return self._settle(self._owed)

    def _settle(self, owed: int) -> int | None:
        """Pass the arrivals to the granter, and so much of what was consumed."""
        arrived, batches, largest = self._arrived, self._batches, self._largest
        if not arrived and not owed:
            return None
        self._arrived = self._batches = self._largest = 0
        self._owed -= owed
        return self._known(self._granter.moved(arrived, batches, largest, owed))

    def _known(self, grant: int | None) -> int | None:
        """Take over the outlook of the granter after its answer `grant`."""
        self._room, target, wanted = self._granter.outlook
        self._waiting = self._waiting and wanted
        self._gather = target // PART
        return grant
