"""The two kinds of threads: one that does what is due again and again, and one that serves a stream and ends with it.

Neither ends in silence by an exception that nobody expected. A `PeriodicTask` logs it, is failing until an action has
succeeded again, and goes on; a `StreamThread` logs it and gives its stream an `InternalError`. These are the only two
places that catch every exception.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from shuffle_api.errors import InternalError, ShuffleError

log = logging.getLogger(__name__)

CLOSE_SECONDS = 30.0  # that `close` waits for an action that is under way
LOG_AGAIN_SECONDS = 60.0  # after which an exception of the same kind is logged again

Result = TypeVar("Result")

Action = Callable[[], float | None]
"""Does what is due; returns the seconds until it is to be called again, None for the period."""


@dataclass(frozen=True, slots=True)
class TaskState:
    """A task at one moment; `reason` is empty unless it is failing, since `failing_seconds`."""

    name: str
    failures: int
    failing_seconds: float
    reason: str


class PeriodicTask:
    """A daemon thread that calls `action` each `period` seconds, and soon after `wake`, from `start` until `close`.

    After an exception the next call comes `retry` seconds later, however often the task is woken meanwhile.

    :ivar closing: set by `close`; an action that waits, waits on it.
    """

    def __init__(
        self, name: str, action: Action, period: float, *, at_once: bool = False, retry: float | None = None
    ) -> None:
        """:param at_once: call `action` first and wait then.
        :param retry: as long as the period if it is None.
        """
        self.name, self.period, self._action, self._retry = name, period, action, retry
        self.closing = threading.Event()
        self._due = threading.Event()
        if at_once:
            self._due.set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._failures = 0
        self._failing: tuple[float, str] | None = None  # since when, and why
        self._logged: dict[object, float] = {}  # kinds of exceptions, and when they are logged again

    def start(self) -> None:
        """Idempotent; does nothing after `close`."""
        with self._lock:
            if self._thread is None and not self.closing.is_set():
                self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
                _TASKS[id(self)] = self
                self._thread.start()

    def wake(self) -> None:
        """Have `action` called soon; once, if this is said again before."""
        self._due.set()

    @property
    def retry(self) -> float:
        """Seconds from an exception to the next call."""
        return self.period if self._retry is None else self._retry

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def state(self) -> TaskState:
        """How it does."""
        now = time.monotonic()
        since, reason = self._failing or (now, "")
        if not reason and not self.is_alive() and not self.closing.is_set():
            reason = "its thread has ended"
        return TaskState(self.name, self._failures, now - since, reason)

    def close(self, within: float = CLOSE_SECONDS) -> bool:
        """End the thread; whether it has ended `within` so many seconds. Idempotent; an action may call it, too."""
        self.closing.set()
        self._due.set()
        with self._lock:
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(within)
        if thread.is_alive():
            log.warning("%s has not ended within %g s; it ends with the process", self.name, within)
            return False
        return True

    def _run(self) -> None:
        pause: float | None = None
        while not self.closing.is_set():
            self._due.wait(self.period if pause is None else pause)
            self._due.clear()
            if self.closing.is_set():
                break
            try:
                pause = self._action()
                self._failing = None
            except Exception as error:  # noqa: BLE001 - the thread survives whatever its action raises
                self._note(error)
                self.closing.wait(self.retry)
                pause = 0.0
        _TASKS.pop(id(self), None)

    def _note(self, error: Exception) -> None:
        now = time.monotonic()
        since, _ = self._failing or (now, "")
        self._failing = since, _described(error)
        self._failures += 1
        kind = type(error), _place(error)
        if now >= self._logged.get(kind, now):
            self._logged[kind] = now + LOG_AGAIN_SECONDS
            log.exception("%s failed; it goes on in %g s", self.name, self.retry)


class StreamThread(threading.Thread):
    """A daemon thread that runs `action` once; see `guarded` for what is done when it raises."""

    def __init__(self, name: str, action: Callable[[], object], broke: Callable[[ShuffleError], object]) -> None:
        super().__init__(name=name, daemon=True)
        self._action, self._broke = action, broke

    def run(self) -> None:
        guarded(self.name, self._action, self._broke)


def guarded(what: str, action: Callable[[], object], broke: Callable[[ShuffleError], object]) -> None:
    """Call `action` for one stream, writer or request of several; when it raises, `broke` gets the reason.

    :param what: who did it, for messages.
    :param broke: ends that one, so that its ends get the error: an InternalError for an exception that nobody expected.
    """
    try:
        action()
    except ShuffleError as error:
        broke(error)
    except Exception as error:  # it must not end a thread that serves others, nor leave its own ends without a reason
        log.exception("%s failed", what)
        failure = InternalError(f"{what} failed: {_described(error)}", remedy="see the log of this process")
        failure.__cause__ = error
        broke(failure)


def aside(
    name: str, call: Callable[[], Result], later: Callable[[Callable[[], object]], object] | None = None
) -> Future[Result]:
    """Make a call that may never return, on another thread: its caller waits for as long as it wants.

    The result is its value, or the error that `guarded` gives.

    :param later: has it made by the thread that it has; without, it gets a thread of its own.
    """
    future: Future[Result] = Future()

    def made() -> None:
        guarded(name, lambda: future.set_result(call()), future.set_exception)

    if later is None:
        StreamThread(name, made, future.set_exception).start()
    else:
        later(made)
    return future


def task_states() -> list[TaskState]:
    """The tasks of this process that run."""
    return [task.state() for task in list(_TASKS.values())]


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _place(error: Exception) -> object:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return None if trace is None else (trace.tb_frame.f_code, trace.tb_lineno)


_TASKS: dict[int, PeriodicTask] = {}
"""Those that run. A dict: its values are listed in one step while other threads add to it."""
