"""The thread of one data directory: it deletes what was removed, and looks whether the directory works.

A removed output is gone from the catalog at once. Its files are deleted here, so that no caller waits for a disk, and a
disk that hangs holds up its own thread only.
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


class Caretaker:
    """Does tasks one after the other. Until `start` each is done by who gives it. Thread-safe.

    :param name: of the directory, or what else is done in its turn.
    :param around: makes a context for each task.
    """

    def __init__(self, name: str, around: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._name, self._around = name, around
        self._changed = threading.Condition()
        self._tasks: deque[tuple[str, Task]] = deque()
        self._thread: StreamThread | None = None
        self._stopping = False

    def start(self) -> None:
        """Have a thread of its own do them from now on."""
        with self._changed:
            self._thread = StreamThread(self._name, self._run, self._note)
            self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread after what it has to do; it is left to itself after `timeout` seconds."""
        with self._changed:
            thread, self._thread, self._stopping = self._thread, None, True
            self._changed.notify_all()
        if thread is not None:
            thread.join(timeout)

    def later(self, task: Task, *, once: str = "") -> None:
        """Have something done soon; this never waits for it. Unless a task named `once` waits to be done already."""
        with self._changed:
            if self._thread is not None:
                if not once or all(name != once for name, _ in self._tasks):
                    self._tasks.append((once, task))
                    self._changed.notify_all()
                return
        self._do(task)

    def wait(self, timeout: float) -> bool:
        """Whether all is done that was given until now, or is within so many seconds."""
        done = threading.Event()
        self.later(done.set)
        return done.wait(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._tasks or self._stopping)
                if not self._tasks:
                    return
                _, task = self._tasks.popleft()
            self._do(task)

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
