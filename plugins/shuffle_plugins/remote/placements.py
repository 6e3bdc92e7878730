"""The master's last answer to where map outputs go, for all map outputs of a process while it holds. No I/O."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection

from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb

FIRST_TURNS = 60


class Placements:
    """Candidates, of which outputs go to the good ones in turn. Thread-safe.

    A worker that fails one output is left out for all; when no candidate is left the master is asked anew, with those
    that failed to be avoided.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._candidates: list[str] = []
        self._in_turn = 0
        self._next = random.randrange(FIRST_TURNS)  # processes that begin at once begin with different ones
        self._until = 0.0
        self._failed: dict[str, float] = {}  # and until when they are avoided

    def choose(self, avoid: Collection[str] = ()) -> str | None:
        """The worker for the next output; None: ask the master.

        :param avoid: workers that have just failed this output.
        """
        with self._lock:
            if self._clock() >= self._until:
                return None
            self._leave_out(avoid)
            if not self._candidates:
                return None
            self._next += 1
            return self._candidates[self._next % max(1, min(self._in_turn, len(self._candidates)))]

    def to_avoid(self, avoid: Collection[str]) -> list[str]:
        """For the request: the workers that have failed this output, or another one just now."""
        with self._lock:
            now = self._clock()
            self._failed = {id: until for id, until in self._failed.items() if until > now}
            return list(dict.fromkeys((*avoid, *self._failed)))[: messages.MOST_AVOIDED]

    def answered(self, reply: pb.PlaceReply) -> None:
        """Take in an answer of the master."""
        with self._lock:
            self._candidates = [worker.id for worker in reply.workers]
            self._in_turn = reply.in_turn
            self._until = self._clock() + reply.good_for_ms / 1000

    def failed(self, worker: str) -> None:
        """A worker did not take an output."""
        with self._lock:
            self._leave_out((worker,))

    def _leave_out(self, workers: Collection[str]) -> None:
        for worker in workers:
            if worker in self._candidates:
                if self._candidates.index(worker) < self._in_turn:
                    self._in_turn -= 1
                self._candidates.remove(worker)
                self._failed[worker] = self._until
