"""Who leads, and until when: the two sides of a lease, each on a clock of its own. No I/O.

The leader renews its lease in the database, and relies on it for a while after it *asked* for the last renewal,
counting the time in which its machine was suspended. A standby takes over when it has seen the same renewal for the
whole lease, from the *answer* to its first look to the question of its last one, and does not count a span in which it
stood still itself or the database did not answer. So the leader falls silent before a standby takes over, however far
their wall clocks are apart, as long as their clocks run at the same speed within a fifth.
"""

from __future__ import annotations

from collections.abc import Callable

from shuffle_api.clock import ServingClock, boot_seconds

LEASE_SECONDS = 8.0
"""A leader that has not renewed its lease for so long is replaced, within ten seconds."""

VALID_SECONDS = 0.8 * LEASE_SECONDS
"""A leader relies on a renewal for so long."""

RENEW_SECONDS = LEASE_SECONDS / 5
LOOK_SECONDS = 0.25  # between two looks of a standby
LOOK_CAP_SECONDS = 2.0  # most of the time between two looks that counts as silence


class HeldLease:
    """The leader's side. Not valid before the first renewal."""

    def __init__(self, clock: Callable[[], float] = boot_seconds) -> None:
        self._clock = clock
        self._until = float("-inf")

    def now(self) -> float:
        """To be asked before a renewal is sent."""
        return self._clock()

    def renewed(self, asked: float) -> None:
        """A renewal that was sent after `asked` has been recorded."""
        self._until = max(self._until, asked + VALID_SECONDS)

    @property
    def valid(self) -> bool:
        """Whether nobody else can lead yet."""
        return self._clock() < self._until


class SeenLease:
    """A standby's side: how long the leader has not renewed."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or ServingClock(LOOK_CAP_SECONDS)
        self._seen: object = None
        self._since = self._asked = self._clock()

    def ask(self) -> None:
        """The database is about to be asked."""
        self._asked = self._clock()

    def answer(self, renewal: object) -> bool:
        """It has answered which renewal is the last, None if there never was one; whether the lease has lapsed."""
        answered = self._clock()
        if renewal is None or renewal != self._seen:
            self._seen, self._since = renewal, answered
        return self._asked - self._since >= LEASE_SECONDS
