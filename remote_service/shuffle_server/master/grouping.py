"""Many waiters, one piece of work for all of them: the mechanism of group commit.

Items are collected while a group is being worked on; whoever waits first takes all that have come since as the next
group and works on it for everybody (Gray and Reuter, Transaction Processing, 9.4.7). So nobody waits for company, and
under load the groups grow by themselves. There is no thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from shuffle_api.errors import DeadlineExceeded, InternalError, ShuffleError

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class Group(Generic[Item, Result]):
    """Items that are worked on together. Once `done`, either `results`, one per item, or `error` holds."""

    items: list[Item] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    error: ShuffleError | None = None
    done: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Ticket(Generic[Item, Result]):
    """A place in a group; give it to `Batcher.wait`."""

    group: Group[Item, Result]
    index: int


class Batcher(Generic[Item, Result]):
    """Collects items into groups and has one of the waiters `work` on each group.

    :param work: makes one result per item, in their order; only one call at a time. A ShuffleError is everybody's.
    :param timeout: seconds for which one waits, for the groups before and one's own.
    :param what: names the work in errors.
    """

    def __init__(self, work: Callable[[list[Item]], list[Result]], *, timeout: float, what: str) -> None:
        self._work, self._timeout, self._what = work, timeout, what
        self._condition = threading.Condition()
        self._next: Group[Item, Result] = Group()
        self._busy = False

    def add(self, item: Item) -> Ticket[Item, Result]:
        """Put an item behind those that have come before; never waits."""
        with self._condition:
            self._next.items.append(item)
            return Ticket(self._next, len(self._next.items) - 1)

    def wait(self, ticket: Ticket[Item, Result]) -> Result:
        """The result of an item. Any number of threads may wait for the same one.

        :raises DeadlineExceeded: it took too long; the work may still be done.
        :raises ShuffleError: what the work on its group raised.
        """
        group = ticket.group
        if self._must_work(group):
            self._lead(group)
        if group.error is not None:
            raise group.error
        return group.results[ticket.index]

    def _must_work(self, group: Group[Item, Result]) -> bool:
        give_up = time.monotonic() + self._timeout
        with self._condition:
            while not group.done:
                if group is self._next and not self._busy:
                    self._busy, self._next = True, Group()
                    return True
                if not self._condition.wait(give_up - time.monotonic()) and time.monotonic() >= give_up:
                    raise DeadlineExceeded(
                        f"{self._what} took more than {self._timeout:g} s",
                        remedy="see whether the disk or the machine is overloaded; the request may be repeated",
                    )
        return False

    def _lead(self, group: Group[Item, Result]) -> None:
        group.error = InternalError(f"{self._what} ended with a bug")  # unless it ends otherwise
        try:
            group.results = self._work(group.items)
            group.error = None
        except ShuffleError as error:
            group.error = error
        finally:
            with self._condition:
                group.done, self._busy = True, False
                self._condition.notify_all()
