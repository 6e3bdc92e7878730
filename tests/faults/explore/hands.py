"""A process at work for the engine of a batch job, and its state as the engine sees it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shuffle_api.errors import ShuffleError
from tests.faults.explore.ledger import Ledger
from tests.faults.explore.processes import Actor
from tests.faults.explore.records import Source


@dataclass(slots=True)
class Work:
    """A map to be run or partitions to be read; neither for what a driver does."""

    ledger: Ledger | None
    map: int = -1
    partitions: range | None = None
    source: Source | None = None
    not_before: float = 0.0
    lost: frozenset[tuple[int, int]] = frozenset()  # of the ledger's winners, when a read began


class Hand:
    """A driver or a task. `late` is one that the engine has given up and that may still be at work."""

    def __init__(self, role: str, main: Any, log: Path) -> None:
        self.role, self.actor = role, Actor(main, log)
        self.work: Work | None = None
        self.command = ""
        self.value: Any = None
        self.error: ShuffleError | None = None
        self.late = self.ended = self.was_frozen = self.last_word = False
        self.since = 0.0
        self._number = 0
        self._held_until = self._frozen_until = 0.0
        self._waits = False
        """It is at an event and was not let go on."""

    @property
    def idle(self) -> bool:
        return self.work is None

    @property
    def held(self) -> bool:
        """Whether it stands still because the explorer wants it to."""
        return bool(self._held_until or self._frozen_until)

    def give(self, work: Work, command: str, arguments: tuple[object, ...]) -> None:
        """Have it do that next."""
        self._number += 1
        self.work, self.command, self.since = work, command, time.monotonic()
        self.value = self.error = None
        if not self.actor.send((self._number, command, arguments)):
            self.ended = True

    def hear(self) -> Any:
        """What it says; None if it says nothing any more."""
        try:
            return self.actor.pipe.recv()
        except (EOFError, OSError):
            self.ended = True
            return None

    def finish(self, message: Any) -> Work:
        """It has answered. What it was given."""
        work = self.work or Work(None)
        self.work = None
        if message[0] == "done":
            self.value, self.error = message[2], None
        elif message[0] == "failed":
            self.error = message[2]
        return work

    def go(self) -> None:
        """Let it go on from an event, now or when it is not held any more."""
        if self._held_until:
            self._waits = True
        elif not self.actor.send(self._number):
            self.ended = True

    def hold(self, seconds: float) -> None:
        """Let it stand at its next event for so long."""
        self._held_until = time.monotonic() + seconds

    def freeze(self, seconds: float) -> None:
        """SIGSTOP for so long."""
        self.was_frozen = True
        self.actor.freeze()
        self._frozen_until = time.monotonic() + seconds

    def release(self, now: float) -> None:
        """End what has lasted long enough."""
        if self._frozen_until and now > self._frozen_until:
            self._frozen_until, self.since = 0.0, now
            self.actor.thaw()
        elif self._held_until and now > self._held_until:
            self._held_until, self.since = 0.0, now
            if self._waits:
                self._waits = False
                self.go()
        if self.last_word and not self.held and not self.ended:
            self.last_word = False
            self.give(Work(None), "close", ())

    def end(self) -> None:
        if self.actor.frozen:
            self.actor.thaw()
        self.actor.kill()
