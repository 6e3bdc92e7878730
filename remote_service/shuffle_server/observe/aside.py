"""Asking a disk without waiting for it: the question is put in a thread of its own, which may never return."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from shuffle_api.periodic import StreamThread

Answer = TypeVar("Answer")


class Aside(Generic[Answer]):
    """Asks `question` whenever it is called, unless the last one has not been answered. Thread-safe.

    :param seconds: for which a caller waits for the answer.
    :param otherwise: makes the answer when none comes in time, out of the last one there was.
    """

    def __init__(
        self,
        question: Callable[[], Answer],
        seconds: float,
        first: Answer,
        otherwise: Callable[[Answer], Answer] = lambda last: last,
    ) -> None:
        self._question, self._seconds, self._otherwise = question, seconds, otherwise
        self._lock = threading.Lock()
        self._last = first
        self._answered = threading.Event()
        self._answered.set()

    def __call__(self) -> Answer:
        with self._lock:
            if self._answered.is_set():
                self._answered = threading.Event()
                StreamThread("aside", partial(self._ask, self._answered), lambda error: None).start()
            answered = self._answered
        return self._last if answered.wait(self._seconds) else self._otherwise(self._last)

    def _ask(self, answered: threading.Event) -> None:
        try:
            self._last = self._question()
        finally:
            answered.set()
