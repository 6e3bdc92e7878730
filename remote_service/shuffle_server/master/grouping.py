"""Many waiters, one piece of work for all of them: the mechanism of group commit.

Items are collected while a group is being worked on; whoever waits first takes all that have come since as the next
group and works on it for everybody (Gray and Reuter, Transaction Processing, 9.4.7). Under load the groups grow by
themselves.

By default there is no thread of its own. Work that may never return, as a write to a disk may not, is given a thread
(`thread`): then nobody but that thread is stuck in it, and those who wait give up in time.

Those whose group has just been done tend to come back all at once, and the first of them would work on a group of one.
Where a group costs much more than an item, its leader may linger for a moment: until as many have come as were in the
group before, and no longer than `linger`. Who is alone never waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from shuffle_api.errors import DeadlineExceeded, InternalError, ShuffleError
from shuffle_api.periodic import StreamThread, guarded

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
    :param thread: the name of a thread that works on all groups until `close`; empty: one of the waiters does.
    """

    def __init__(
        self,
        work: Callable[[list[Item]], list[Result]],
        *,
        timeout: float,
        what: str,
        linger: float = 0.0,
        thread: str = "",
    ) -> None:
        self._work, self._timeout, self._what, self._linger = work, timeout, what, linger
        self._name = thread
        self._thread: StreamThread | None = None
        self._closed = False
        lock = threading.Lock()
        self._done = threading.Condition(lock)  # a group is done
        self._due = threading.Condition(lock)  # there is something for the thread
        self._company = threading.Condition(lock)  # the next group has as many items as its leader lingers for
        self._next: Group[Item, Result] = Group()
        self._busy = False
        self._expected = 1  # items of the group before

    def add(self, item: Item) -> Ticket[Item, Result]:
        """Put an item behind those that have come before; never waits."""
        with self._done:
            self._next.items.append(item)
            if len(self._next.items) == self._expected:
                self._company.notify()
            if self._name:
                self._due.notify()
                if self._thread is None:
                    self._thread = StreamThread(self._name, self._run, lambda error: None)
                    self._thread.start()
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
                if group is self._next and not self._busy and not self._name:
                    self._busy = True
                    if len(group.items) < self._expected and self._linger:
                        self._company.wait_for(lambda: len(group.items) >= self._expected, self._linger)
                    self._next, self._expected = Group(), len(group.items)
                    return True
                if not self._done.wait(give_up - time.monotonic()) and time.monotonic() >= give_up:
                    raise DeadlineExceeded(
                        f"{self._what} took more than {self._timeout:g} s",
                        remedy="see whether the disk or the machine is overloaded; the request may be repeated",
                    )
        return False

    def _run(self) -> None:
        while (group := self._take()) is not None:
            guarded(self._what, partial(self._lead, group), lambda error: None)  # those who wait get it

    def _take(self) -> Group[Item, Result] | None:
        """The next group, None at the end: for the thread."""
        with self._done:
            self._due.wait_for(lambda: self._next.items or self._closed)
            if not self._next.items:
                return None
            group, self._next = self._next, Group()
            return group

    def close(self, timeout: float) -> None:
        """End the thread, if there is one, after the groups that are there; it is left alone when that takes longer."""
        with self._done:
            self._closed = True
            self._due.notify()
        if self._thread is not None:
            self._thread.join(timeout)

    def _lead(self, group: Group[Item, Result]) -> None:
        group.error = InternalError(f"{self._what} ended with a bug")  # unless it ends otherwise
        try:
            group.results = self._work(group.items)
            group.error = None
        except ShuffleError as error:
            group.error = error
        finally:
            with self._done:
                group.done, self._busy = True, False
                self._done.notify_all()
