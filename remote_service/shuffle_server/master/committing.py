"""Commits of all workers' streams, in groups: what has come while one group was made durable is the next group.

There is one thread. It decodes, decides and answers, so the registry is entered and its log waited for once for many
requests, and a stream costs no thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

from shuffle_api.errors import ShuffleError
from shuffle_api.periodic import StreamThread, guarded
from shuffle_transport.security import ANYBODY, Principal

MOST_REQUESTS = 64  # in one group: so many replies wait for the same write


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came, what is done with the reply, and whom it comes from."""

    data: bytes
    answer: Callable[[bytes | ShuffleError], object] = lambda answer: None
    principal: Principal = ANYBODY


Answers = Callable[[Sequence[Asked]], Sequence[bytes | ShuffleError]]
"""The replies to requests, in their order; may raise a ShuffleError that is the answer to all."""


class Committer:
    """Answers requests through `answers`, many at once. Thread-safe. Its thread starts with the first request."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._asked: SimpleQueue[Asked | None] = SimpleQueue()
        self._started = self._closed = False

    def answer(self, data: bytes) -> bytes:
        """The reply to one request, made by the caller's thread. Raises ShuffleError."""
        (answer,) = self._answers([Asked(data)])
        if isinstance(answer, ShuffleError):
            raise answer
        return answer

    def ask(self, asked: Asked) -> None:
        """Never waits. By one thread at a time."""
        if not self._started:
            self._started = True
            StreamThread("control-commits", self._work, lambda error: None).start()
        self._asked.put(asked)

    @property
    def waiting(self) -> int:
        return self._asked.qsize()

    def close(self) -> None:
        """End the thread, once it has nothing to do."""
        self._asked.put(None)

    def _work(self) -> None:
        while not self._closed:
            if group := self._take():
                guarded("a group of commits", partial(self._answer, group), partial(_refuse, group))

    def _take(self) -> list[Asked]:
        """What has come meanwhile; waits for the first."""
        first = self._asked.get()
        self._closed = first is None
        group = [] if first is None else [first]
        try:
            while len(group) < MOST_REQUESTS and not self._closed:
                following = self._asked.get_nowait()
                self._closed = following is None
                if following is not None:
                    group.append(following)
        except Empty:
            pass
        return group

    def _answer(self, group: Sequence[Asked]) -> None:
        answers = self._answers(group)
        for asked, answer in zip(group, answers, strict=True):
            asked.answer(answer)


def _refuse(group: Sequence[Asked], error: ShuffleError) -> None:
    for asked in group:
        asked.answer(error)
