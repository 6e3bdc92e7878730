"""A thread that deletes what was removed, and ends what was closed, where that needs a disk.

A removed output, or log, is out of every table at once. Its files are deleted here, so that no caller waits for a disk,
and a disk that hangs holds up its own thread only.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from shuffle_api.periodic import StreamThread, guarded

log = logging.getLogger(__name__)

Task = Callable[[], object]
Around = Callable[[], AbstractContextManager[None]]


class Caretaker:
    """Does tasks one after the other. Until `start` each is done by its giver, and by none of its givers after that.

    Thread-safe; `later` may be called by a finalizer.

    :param name: of the directory, or what else is done in its turn.
    :param around: makes a context for each task.
    """

    def __init__(self, name: str, around: Around = nullcontext) -> None:
        self._name, self._around = name, around
        self._changed = threading.Condition()
        self._tasks: deque[tuple[str, Task]] = deque()
        self._thread: StreamThread | None = None
        self._started = self._stopping = False

    def start(self) -> None:
        """Have a thread of its own do them from now on. Idempotent."""
        with self._changed:
            if not self._started:
                self._started = True
                self._begin()

    def stop(self, timeout: float) -> bool:
        """End the thread after what it has to do; whether it has ended within `timeout` seconds.

        If not, it is left to itself: it goes on when the disk does, if the process still runs. A task that is given
        later is done by another thread, which ends with it.
        """
        with self._changed:
            thread, self._stopping = self._thread, True
            self._changed.notify_all()
        if thread is None:
            return True
        thread.join(timeout)
        return not thread.is_alive()

    def later(self, task: Task, *, once: str = "") -> None:
        """Have something done soon; this never waits for it. Unless a task named `once` waits to be done already."""
        with self._changed:
            if self._started:
                if not once or all(name != once for name, _ in list(self._tasks)):
                    self._tasks.append((once, task))
                    self._changed.notify_all()
                if self._thread is None:
                    self._begin()
                return
        self._do(task)

    def wait(self, timeout: float) -> bool:
        """Whether all is done that was given until now, or is within so many seconds."""
        done = threading.Event()
        self.later(done.set)
        return done.wait(timeout)

    def _begin(self) -> None:
        self._thread = StreamThread(self._name, self._run, self._note)
        self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._tasks or self._stopping)
                if not self._tasks:
                    self._thread = None
                    return
                _, task = self._tasks.popleft()
            self._do(task)
            del task  # what it refers to must not live until the next one

    def _do(self, task: Task) -> None:
        guarded(self._name, partial(self._try, task), self._note)

    def _try(self, task: Task) -> None:
        try:
            with self._around():
                task()
        except OSError as error:
            self._note(error)

    def _note(self, error: Exception) -> None:
        log.warning("%s: %s; it is tried again later", self._name, error)
