"""The thread of a data directory, and what is asked of those of a server that starts: answered before a disk hangs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TypeVar

from shuffle_api.caretaker import Around, Caretaker
from shuffle_api.clock import LOOKS_PER_TIMEOUT
from shuffle_api.errors import StorageFailed
from shuffle_api.periodic import aside
from shuffle_server.store.calls import DISK_SECONDS, DiskCalls

LOOK_SECONDS = 0.2  # between two looks, at most, whether a call hangs that is waited for

log = logging.getLogger(__name__)

T = TypeVar("T")


class DiskThread:
    """The thread of one data directory, and the calls to its file system. Thread-safe.

    :param limit: seconds after which a call hangs.
    :param around: made for each task: a call. None: a task is a call.
    """

    def __init__(self, root: Path, limit: float = DISK_SECONDS, around: Around | None = None) -> None:
        self.root, self._limit = root, limit
        self.calls = DiskCalls(root, limit)
        self.caretaker = Caretaker(f"disk {root}", around or self.calls.own)

    def do(self, what: str, task: Callable[[], T]) -> T:
        """What `task` returns, once the thread has done it.

        :param what: names it.
        :raises StorageFailed: a call in it hangs.
        :raises ShuffleError: what it raises.
        """
        return self.result(what, self.ask(task))

    def ask(self, task: Callable[[], T]) -> Future[T]:
        """What `task` will return, or raise."""
        return aside(f"disk {self.root}", task, self.caretaker.later)

    def result(self, what: str, answer: Future[T]) -> T:
        """What the thread has answered. Raises as `do`."""
        if hang := self.wait(what, answer):
            raise StorageFailed(
                f"data directory {self.root}, {what}: {hang}, which is above --disk-timeout ({self._limit:g} s)",
                remedy="see to this disk, or to its file server, and start again; raise --disk-timeout if it is slow",
            )
        return answer.result()

    def wait(self, what: str, answer: Future[T]) -> str:
        """Return when the thread has answered; or that a call in it hangs, and then it may answer later."""
        said, pause = False, min(LOOK_SECONDS, self._limit / LOOKS_PER_TIMEOUT)
        while not futures.wait([answer], pause).done:
            if hang := self.calls.hang:
                return hang
            if self.calls.slow and not said:
                log.warning("waits for data directory %s, %s: for %g s at most", self.root, what, self._limit)
                said = True
        return ""

    def stop(self, timeout: float) -> bool:
        """End the thread after what it has to do; whether it has ended within so many seconds, or 0 if it hangs."""
        return self.caretaker.stop(0.0 if self.calls.hang else timeout)


def ask_all(disks: Sequence[DiskThread], what: str, task: Callable[[DiskThread], T]) -> dict[DiskThread, T]:
    """What `task` returns in the thread of each data directory of a server that starts, all of them at the same time.

    The server goes on without the directories that hang, but for the first one.

    :raises StorageFailed: that one hangs.
    :raises ShuffleError: what `task` raises.
    """
    asked = [(disk, bool(disk.calls.hang), disk.ask(partial(task, disk))) for disk in disks]
    found = {}
    for disk, known, answer in asked:
        if disk is disks[0] or not (hang := disk.wait(what, answer)):
            found[disk] = disk.result(what, answer)
        elif not known:
            log.error("data directory %s is out, %s: %s; the start goes on without it", disk.root, what, hang)
    return found
