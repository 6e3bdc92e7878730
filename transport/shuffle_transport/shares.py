"""Whose memory it is: the share of each owner in a pool, and its bounds."""

from __future__ import annotations

from typing import NamedTuple

FOR_OTHERS = 8
"""One owner's share is at most the budget but for this part of it."""

FOR_OUTGOING = 4
"""What is outgoing takes at most this part of the budget; more only alone."""


class Owner(NamedTuple):
    """Whose a reservation is: an application (empty: nobody's in particular), and whether a peer is to read it."""

    name: str = ""
    outgoing: bool = False


NOBODY = Owner()


class Shares:
    """What the owners have reserved of a budget. Not thread-safe: a pool asks it with its lock held.

    :ivar outgoing: bytes that wait for a peer to read them.
    """

    def __init__(self, budget: int) -> None:
        self._bound = budget - budget // FOR_OTHERS
        self._most_outgoing = budget // FOR_OUTGOING
        self._shares: dict[str, int] = {}  # of named owners
        self.outgoing = 0

    def of(self, owner: Owner) -> int:
        """Bytes that an owner has reserved; 0 for nobody."""
        return self._shares.get(owner.name, 0)

    @property
    def owners(self) -> int:
        """How many have reserved something."""
        return len(self._shares)

    @property
    def largest(self) -> int:
        return max(self._shares.values(), default=0)

    def may_take(self, n: int, owner: Owner) -> bool:
        """Whether an owner's bounds let it reserve so much more. What is above a bound passes alone."""
        share = self._shares.get(owner.name, 0)
        return (not share or share + n <= self._bound) and (
            not owner.outgoing or not self.outgoing or self.outgoing + n <= self._most_outgoing
        )

    def take(self, n: int, owner: Owner) -> None:
        """An owner has reserved so much more, or less."""
        if owner.outgoing:
            self.outgoing += n
        if not owner.name:
            return
        share = self._shares.get(owner.name, 0) + n
        if share:
            self._shares[owner.name] = share
        else:
            self._shares.pop(owner.name, None)
