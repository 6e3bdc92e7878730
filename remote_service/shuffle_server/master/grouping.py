"""Many waiters, one piece of work for all of them: the mechanism of group commit.

Items are collected while a group is being worked on; the first waiter takes all items that have come meanwhile as the
next group and works on it for all waiters (Gray and Reuter, Transaction Processing, 9.4.7). Under load the groups grow
by themselves.

There is no thread of its own, which would have to be woken for each group. When the work does not return, as a write to
a dead disk may not, its leader is stuck in it; the others give up in time.

Those whose group has just been done tend to come back all at once, and the first of them would work on a group of one.
Where a group costs much more than an item, its leader may linger for a moment: until as many have come as were in the
group before, and for at most `linger`. A lone caller never waits, nor one that comes later than that after the group.
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
    :param linger: most seconds for which a leader waits for company; 0: not at all.
    """

    def __init__(
        self, work: Callable[[list[Item]], list[Result]], *, timeout: float, what: str, linger: float = 0.0
    ) -> None:
        self._work, self._timeout, self._what, self._linger = work, timeout, what, linger
        lock = threading.Lock()
        self._done = threading.Condition(lock)  # a group is done
        self._company = threading.Condition(lock)  # the next group has as many items as its leader lingers for
        self._next: Group[Item, Result] = Group()
        self._busy = False
        self._expected = 1  # items of the group before
        self._ended = -linger  # when it was done

    def add(self, item: Item) -> Ticket[Item, Result]:
        """Put an item behind those that have come before; never waits."""
        with self._done:
            self._next.items.append(item)
            if len(self._next.items) == self._expected:
                self._company.notify()
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
        """Wait until the group is done, or until it is this thread's to work on."""
        give_up = time.monotonic() + self._timeout
        with self._done:
            while not group.done:
                if group is self._next and not self._busy:
                    self._busy = True
                    company = time.monotonic() - self._ended < self._linger
                    if company and len(group.items) < self._expected:
                        self._company.wait_for(lambda: len(group.items) >= self._expected, self._linger)
                    self._next, self._expected = Group(), len(group.items)
                    return True
                if not self._done.wait(give_up - time.monotonic()) and time.monotonic() >= give_up:
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
            with self._done:
                group.done, self._busy, self._ended = True, False, time.monotonic()
                self._done.notify_all()
