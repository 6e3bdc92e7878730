"""Simulated threads, processes and time: one thread runs at a time, and a seeded generator chooses the next.

Each simulated thread is a greenlet with a stack of its own, so the product's code runs unmodified. Time passes only
when no thread can run: the clock then moves to the next timer.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from greenlet import greenlet

MOST_STEPS = 400_000
"""Steps of one schedule; a schedule with more is one in which a thread spins."""

TICK = 1e-6
"""By which time moves with each look at a clock, so that no two events have the same time."""

BOOT = 1_000.0
"""What the monotonic clock says at the start."""


class Crash(BaseException):
    """The process of this thread has ended; none of its code runs any more."""


@dataclass(eq=False)
class Process:
    """One life of a program. `fuse`: the number of steps after which it is killed."""

    name: str
    alive: bool = True
    paused: bool = False
    fuse: int | None = None
    wall_offset: float = 0.0
    asleep: float = 0.0  # for how long the machine was suspended: the monotonic clock has not counted that
    fds: dict[int, str] = field(default_factory=dict)
    tasks: dict[int, object] = field(default_factory=dict)  # the product's periodic tasks
    when_killed: list[Callable[[], None]] = field(default_factory=list)


class Task:
    """A simulated thread. `stack`: the process whose code runs is the last one; those before wait for its answer."""

    def __init__(self, process: Process, target: Callable[[], object], name: str) -> None:
        self.stack, self.target, self.name = [process], target, name
        self.fiber: greenlet | None = None  # once it has begun
        self.waiting = self.woken = self.done = False
        self.turn = 0  # of its waits, so that the timer of an earlier one wakes nobody
        self.joining: list[Task] = []

    @property
    def process(self) -> Process:
        return self.stack[-1]


class Scheduler:
    """The threads of one schedule.

    :param switching: how likely another thread goes on at a step, from 0 to 1.
    """

    def __init__(self, seed: int, switching: float) -> None:
        self.random = random.Random(seed)
        self._switching = switching
        self.now = 0.0
        self.steps = 0
        self.ending = False
        self.limit = float("inf")  # the time at which the schedule ends
        self.trouble = ""  # why it ended before
        self._ready: list[Task] = []
        self._tasks: dict[Task, None] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._main: greenlet | None = None
        self.current: Task | None = None
        self.unexpected: Callable[[Task, Exception], None] = lambda task, error: None

    # ------------------------------------------------------------------ from outside

    def run(self) -> None:
        """Run until `end` is called or time is up; all threads have ended when this returns."""
        self._main = greenlet.getcurrent()
        while (task := self._next()) is not None:
            self._go_on(task)  # returns when some thread has ended
        self.current = None

    def forget(self) -> None:
        """Let go of everything, after the run."""
        self.ending = True
        self._timers.clear()
        self.unexpected = lambda task, error: None

    def end(self) -> None:
        """Have all threads end at their next step."""
        self.ending = True
        for task in self._tasks:
            if task.waiting:
                self.wake(task)

    # ------------------------------------------------------------------ threads

    def spawn(self, process: Process, target: Callable[[], object], name: str) -> Task:
        """A thread of `process`, which runs when it is its turn."""
        task = Task(process, target, name)
        self._tasks[task] = None
        self._ready.append(task)
        return task

    def _carry(self, task: Task) -> None:
        """Run a thread to its end."""
        try:
            self.check(task)
            task.target()
        except Crash:
            pass
        except Exception as error:  # noqa: BLE001  # a thread that ends so is what the simulation looks for
            if not self.dead():
                self.unexpected(task, error)
        task.done = True
        del self._tasks[task]
        for other in task.joining:
            if other.waiting:
                self.wake(other)

    def check(self, task: Task) -> None:
        """Raises Crash when the process of a thread is dead; returns when it is not stopped."""
        while True:
            process = task.stack[-1]
            if self.ending or not process.alive:
                raise Crash
            if not process.paused:
                return
            self._ready.append(task)
            self._switch(task)

    def step(self) -> None:
        """A point at which the process may be killed, or another thread may go on."""
        task = self.me()
        self.check(task)
        self.steps += 1
        if self.steps > MOST_STEPS:
            self.trouble = f"more than {MOST_STEPS} steps: a thread spins"
            self.end()
            raise Crash
        process = task.process
        if process.fuse is not None:
            process.fuse -= 1
            if process.fuse <= 0:
                self.kill(process)
                raise Crash
        if self._ready and self.random.random() < self._switching:
            self._ready.append(task)
            self._switch(task)
            self.check(task)

    def block(self, seconds: float | None = None) -> bool:
        """Wait to be woken; False when that takes longer than `seconds`."""
        task = self.me()
        self.check(task)
        task.turn += 1
        task.waiting, turn = True, task.turn

        def late() -> None:
            if task.waiting and task.turn == turn:
                self.wake(task, in_time=False)

        if seconds is not None:
            self.after(seconds, late)
        self._switch(task)
        self.check(task)
        return task.woken

    def wake(self, task: Task, *, in_time: bool = True) -> None:
        task.waiting, task.woken = False, in_time
        self._ready.append(task)

    def sleep(self, seconds: float) -> None:
        self.block(max(0.0, seconds))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Have `call`, which never waits, called in so many seconds."""
        heapq.heappush(self._timers, (self.now + max(0.0, seconds), next(self._numbers), call))

    def me(self) -> Task:
        assert self.current is not None
        return self.current

    def dead(self) -> bool:
        """Whether the current thread is of a process that has ended, and only unwinds."""
        task = self.current
        return task is None or self.ending or not task.stack[-1].alive

    # ------------------------------------------------------------------ processes and time

    def kill(self, process: Process) -> None:
        """End a process as `kill -9` does."""
        if not process.alive:
            return
        process.alive, process.paused = False, False
        for call in process.when_killed:
            call()
        for task in self._tasks:
            if task.waiting and task.process is process:
                self.wake(task)

    def monotonic(self) -> float:
        self.now += TICK
        task = self.current
        return BOOT + self.now - (task.process.asleep if task is not None else 0.0)

    def boottime(self) -> float:
        self.now += TICK
        return BOOT + self.now

    def wall(self) -> float:
        task = self.current
        return 1_800_000_000.0 + self.now + (task.process.wall_offset if task is not None else 0.0)

    # ------------------------------------------------------------------ turns

    def _switch(self, task: Task) -> None:
        following = self._next()
        assert following is not None  # `task` at the latest, which has not ended
        if following is task:
            self.current = task
        else:
            self._go_on(following)

    def _next(self) -> Task | None:
        """Whose turn it is now, None at the end."""
        while True:
            if self.ending:
                return self._ready.pop() if self._ready else None
            runnable = [at for at, task in enumerate(self._ready) if _may_run(task.stack[-1])]
            if runnable:
                return self._ready.pop(runnable[self.random.randrange(len(runnable))])
            if not self._timers or self._timers[0][0] > self.limit:
                self.trouble = self.trouble or "time is up"
                self.end()
                continue
            at, _, call = heapq.heappop(self._timers)
            self.now, self.current = max(self.now, at), None
            try:
                call()
            except Exception as error:  # noqa: BLE001  # a bug of the simulation
                self.trouble = f"{type(error).__name__}: {error}"
                self.end()

    def _go_on(self, task: Task) -> None:
        self.current = task
        if task.fiber is None:
            task.fiber = greenlet(self._carry, self._main)
            task.fiber.switch(task)
        else:
            task.fiber.switch()


def _may_run(process: Process) -> bool:
    """Threads of a process that has ended run to unwind."""
    return not (process.paused and process.alive)
