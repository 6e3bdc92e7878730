"""What stands in for locks and threads of the standard library: the same methods, in simulated threads and time."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.faults.simulate.scheduler import Crash, Scheduler, Task

if TYPE_CHECKING:
    from tests.faults.simulate.network import Network


class Here:
    """The schedule that this process runs now."""

    scheduler: Scheduler
    network: Network
    random: random.Random  # what the product's code asks for random bytes


class Lock:
    """`threading.Lock`. The thread that has waited longest gets it next."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = Here.scheduler
        task = scheduler.current
        if task is None:  # between schedules: nobody else is there
            self._held = True
            return True
        if scheduler.ending or not task.stack[-1].alive:
            if blocking:
                raise Crash
            return False  # as if it were held, by the thread that asks
        if not self._held:
            self._held = True
            return True
        if not blocking:
            return False
        self._waiting.append(task)
        if not scheduler.block(None if timeout < 0 else timeout):
            with suppress(ValueError):  # it was passed over
                self._waiting.remove(task)
            return False
        return True  # handed over

    def release(self) -> None:
        scheduler = Here.scheduler
        task = scheduler.current
        if task is not None and (scheduler.ending or not task.stack[-1].alive):
            return
        if task is not None and not self._held:
            raise RuntimeError("release unlocked lock")
        while task is not None and self._waiting:
            task = self._waiting.popleft()
            if task.waiting and task.process.alive:
                scheduler.wake(task)
                return
        self._held = False

    def _at_fork_reinit(self) -> None: ...

    def locked(self) -> bool:
        return self._held

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock:
    """`threading.RLock`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._owner: Task | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = Here.scheduler.current
        if self._count and self._owner is me:
            self._count += 1
            return True
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner, self._count = me, 1
        return True

    def release(self) -> None:
        if Here.scheduler.current is not None and Here.scheduler.dead():
            return
        if self._owner is not Here.scheduler.current:
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    # What threading.Condition asks of it.

    def _release_save(self) -> tuple[int, Task | None]:
        saved = self._count, self._owner
        self._count, self._owner = 0, None
        self._lock.release()
        return saved

    def _acquire_restore(self, saved: tuple[int, Task | None]) -> None:
        self._lock.acquire()
        self._count, self._owner = saved

    def _is_owned(self) -> bool:
        return self._owner is Here.scheduler.current or Here.scheduler.dead()


class Thread:
    """`threading.Thread`."""

    _numbers = itertools.count(1)

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._target, self._args, self._kwargs = target, tuple(args), dict(kwargs or {})
        self.name, self.daemon = name or f"Thread-{next(self._numbers)}", bool(daemon)
        self._task: Task | None = None

    def run(self) -> None:
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def start(self) -> None:
        if self._task is not None:
            raise RuntimeError("threads can only be started once")
        scheduler = Here.scheduler
        self._task = scheduler.spawn(scheduler.me().process, self.run, self.name)

    def join(self, timeout: float | None = None) -> None:
        task, scheduler = self._task, Here.scheduler
        if task is None:
            raise RuntimeError("cannot join thread before it is started")
        if scheduler.dead() or task.done:
            return
        task.joining.append(scheduler.me())
        scheduler.block(timeout)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done

    @property
    def ident(self) -> int | None:
        return None if self._task is None else id(self._task)
