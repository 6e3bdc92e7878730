"""How far a command is that takes long: a bar on standard error where that is a terminal, and lines above it.

A process has one terminal, so it shows one bar at a time. Results are for standard output alone.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from types import TracebackType
from typing import Any, ClassVar

import click

from shuffle_api.tables import printable, time_shown

STEPS = 1000
BAR_WIDTH = 20
BESIDE = BAR_WIDTH + 12  # columns of the bar, its brackets and the percentage
SURE_STEPS, SURE_SECONDS = STEPS // 20, 2.0  # after which what has passed is good for a guess of what is left
ERASE = "\r\x1b[2K"
SHOW_CURSOR = "\x1b[?25h"


class Progress:
    """A bar. A context manager, thread-safe.

    Nothing is shown where standard error is no terminal, or if it is `hidden`; it is gone at the end.
    """

    _lock: ClassVar[threading.RLock] = threading.RLock()
    _shown: ClassVar[Progress | None] = None

    def __init__(self, label: str, *, hidden: bool = False) -> None:
        self._step, self._room, self._began = 0, 0, time.monotonic()
        self._bar: Any = None  # click does not export its type
        if not hidden and sys.stderr.isatty():
            label = printable(label)
            self._room = max(8, shutil.get_terminal_size().columns - len(label) - BESIDE)
            self._bar = click.progressbar(
                length=STEPS,
                label=label,
                file=sys.stderr,
                width=BAR_WIDTH,
                show_eta=False,  # click's is of the first step on, when it is off by hours
                item_show_func=lambda text: text,
                update_min_steps=0,
            )

    def at(self, done: float, total: float, text: str = "") -> None:
        """So much of `total` is done; `text` says what is done now. It never goes back, and never reaches the end."""
        if self._bar is None:
            return
        with self._lock:
            reached = int(STEPS * done / total) if total > 0 else 0
            forward = max(0, min(STEPS - 1, reached) - self._step)
            self._step += forward
            self._bar.update(forward, (self._left() + printable(text))[: self._room])

    def _left(self) -> str:
        """About how long it takes from now on; empty for as long as that cannot be said."""
        passed = time.monotonic() - self._began
        if self._step < SURE_STEPS or passed < SURE_SECONDS:
            return ""
        return f"{time_shown(passed * (STEPS - self._step) / self._step)} left  "

    @property
    def is_shown(self) -> bool:
        """Whether there is a bar: without one the caller need not find out the total."""
        return self._bar is not None

    def __enter__(self) -> Progress:
        if self._bar is not None:
            with self._lock:
                self._bar.__enter__()
                Progress._shown = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            with self._lock:
                Progress._shown = None
                sys.stderr.write(ERASE + SHOW_CURSOR)
                sys.stderr.flush()

    @classmethod
    def above(cls, line: str, *, err: bool = False) -> None:
        """Print a line, to standard error or to standard output; the bar, if there is one, stays below it."""
        with cls._lock:
            if cls._shown is not None:
                sys.stderr.write(ERASE)
                sys.stderr.flush()
            click.echo(line, err=err)
            sys.stdout.flush()
            if cls._shown is not None:
                sys.stderr.write(cls._shown._bar.format_progress_line())  # by itself it draws only what has changed
                sys.stderr.flush()


def say(text: str) -> None:
    """A line on standard error about what is going on."""
    Progress.above(text, err=True)
