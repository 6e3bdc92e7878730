"""Threads for the calls of the control endpoint: each kind of call has a pool of its own, which no other one fills.

In a pool callers take turns, however many calls each has, and none has all the threads. So a flood of one
application costs the others at most the time of the calls that are under way.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from shuffle_api.errors import Overloaded, ShuffleError
from shuffle_api.periodic import StreamThread, guarded

IDLE_SECONDS = 5.0
"""After which a thread ends that has had nothing to do, if there is another one that has not."""


@dataclass(frozen=True, slots=True)
class QueuedCall:
    """A call that is to be answered.

    :param caller: whose turn it is.
    :param refuse: answers instead of `run`.
    """

    caller: str
    run: Callable[[], object]
    refuse: Callable[[ShuffleError], object]
    since: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class Refusals:
    """How a pool refuses.

    :param full: what the refusal of a call says that finds too many waiting.
    :param stuck_seconds: calls are refused that have waited so long for others to end, if none has; None: they wait.
    :param stuck: what that refusal says.
    :param refused: called when `offer` refuses.
    """

    full: str
    stuck_seconds: float | None = None
    stuck: str = ""
    remedy: str = "try again later"
    refused: Callable[[], object] = lambda: None


class CallPool:
    """Runs jobs in up to `threads` threads. Thread-safe.

    :param most: jobs that may wait, half of them of one caller.
    """

    def __init__(self, name: str, threads: int, most: int, refusals: Refusals) -> None:
        self.name, self._threads, self._most, self._refusals = name, threads, most, refusals
        self._share = max(1, threads - max(1, threads // 4))  # of them, for one caller
        self._changed = threading.Condition()
        self._waiting: OrderedDict[str, deque[QueuedCall]] = OrderedDict()  # by caller; the first has the next turn
        self._count = 0
        self._running: dict[str, int] = {}
        self._started = self._idle = 0
        self._ended_at = time.monotonic()  # when the last job ended
        self._closed = False

    def offer(self, job: QueuedCall) -> None:
        """Have `job` run when it is its turn. Raises Overloaded."""
        with self._changed:
            jobs = self._waiting.get(job.caller, ())
            full = self._count >= self._most or len(jobs) >= max(1, self._most // 2)
            start = not full and self._queue(job)
        if full:
            self._refusals.refused()
            raise Overloaded(self._refusals.full, remedy=self._refusals.remedy)
        if start:
            StreamThread(f"control-{self.name}", self._work, _nothing).start()

    def _queue(self, job: QueuedCall) -> bool:
        """Whether it needs another thread."""
        self._count += 1
        self._waiting.setdefault(job.caller, deque()).append(job)
        if self._count <= self._idle:  # as many wait for a job
            self._changed.notify()
            return False
        start = self._started < self._threads
        self._started += start
        return start

    @property
    def waiting(self) -> int:
        """How many jobs wait for their turn."""
        return self._count

    @property
    def running(self) -> int:
        """How many jobs are under way."""
        return sum(list(self._running.values()))

    def sweep(self) -> None:
        """Refuse what has waited for too long; to be called often.

        A call that could have its turn is not refused: its thread has not got to run, and that says nothing of others.
        """
        refusals = self._refusals
        if refusals.stuck_seconds is None or not self._count:
            return
        with self._changed:
            overdue = time.monotonic() - refusals.stuck_seconds
            if self._ended_at > overdue:
                return
            all_busy = self.running >= self._threads
            stuck = [jobs for caller, jobs in self._waiting.items() if all_busy or not self._may_run(caller)]
            refused = [job for jobs in stuck for job in jobs if job.since <= overdue]
            for job in refused:
                self._forget(job)
        for job in refused:
            job.refuse(Overloaded(refusals.stuck, remedy=refusals.remedy))

    def close(self) -> None:
        """End the threads, once they have nothing to do."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _forget(self, job: QueuedCall) -> None:
        jobs = self._waiting[job.caller]
        jobs.remove(job)
        self._count -= 1
        if not jobs:
            del self._waiting[job.caller]

    def _work(self) -> None:
        while (job := self._next()) is not None:
            guarded(f"a call in lane {self.name}", job.run, job.refuse)
            with self._changed:
                self._done(job.caller)
            job = None  # what it refers to must not live until the next one

    def _next(self) -> QueuedCall | None:
        with self._changed:
            while (job := self._turn()) is None:
                if self._closed:
                    return None
                self._idle += 1
                woken = self._changed.wait(IDLE_SECONDS)
                self._idle -= 1
                if not woken and self._idle and not self._count:  # one thread stays
                    self._started -= 1
                    return None
            return job

    def _may_run(self, caller: str) -> bool:
        """Whether it has less than its share of the threads."""
        return self._running.get(caller, 0) < self._share

    def _turn(self) -> QueuedCall | None:
        for caller, jobs in self._waiting.items():
            if self._may_run(caller):
                job = jobs.popleft()
                self._count -= 1
                self._running[caller] = self._running.get(caller, 0) + 1
                if jobs:
                    self._waiting.move_to_end(caller)
                else:
                    del self._waiting[caller]
                return job
        return None

    def _done(self, caller: str) -> None:
        self._ended_at = time.monotonic()
        left = self._running[caller] - 1
        if left:
            self._running[caller] = left
        else:
            del self._running[caller]


def _nothing(*_: object) -> None: ...
