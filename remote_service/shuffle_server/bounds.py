"""How many of something each one may have at once, and how many there may be in all."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Generic, TypeVar

from shuffle_api.errors import Overloaded

Owner = TypeVar("Owner", bound=Hashable)


class Bound(Generic[Owner]):
    """Counts what owners have. Thread-safe; keeps nothing of an owner that has nothing.

    :param what: completes "3 ..." in refusals: "calls wait for their message".
    :param each: most of one owner.
    :param most: most in all; None: any number.
    """

    def __init__(self, what: str, each: int, most: int | None = None, *, remedy: str = "try again later") -> None:
        self._what, self.each, self.most, self._remedy = what, each, most, remedy
        self._lock = threading.Lock()
        self._of: dict[Owner, int] = {}
        self._count = 0

    def enter(self, owner: Owner, whose: str, amount: int = 1) -> None:
        """So many more. Raises Overloaded; `whose` names the owner in it."""
        with self._lock:
            has = self._of.get(owner, 0)
            too_many = has + amount > self.each
            if not too_many and (self.most is None or self._count + amount <= self.most):
                self._of[owner] = has + amount
                self._count += amount
                return
            if too_many:
                reached = f"{whose}: {has} {self._what}, the limit is {self.each}"
            else:
                reached = f"{self._count} {self._what}, the limit is {self.most}"
        raise Overloaded(reached, remedy=self._remedy)

    def leave(self, owner: Owner, amount: int = 1) -> None:
        """So many less."""
        with self._lock:
            self._count -= amount
            left = self._of[owner] - amount
            if left:
                self._of[owner] = left
            else:
                del self._of[owner]

    @property
    def largest(self) -> int:
        """The most that one owner has."""
        with self._lock:
            return max(self._of.values(), default=0)

    @property
    def count(self) -> int:
        """How many there are."""
        return self._count


def host_of(peer: str) -> str:
    """The address without its port, of what gRPC writes as `ipv4:127.0.0.1:1234` or `ipv6:%5B::1%5D:1234`."""
    return peer.rpartition(":")[0] or peer
