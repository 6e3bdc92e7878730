"""Sinks that are killed (SIGKILL) between two lines of their task: before a given line, or after so many lines."""

from __future__ import annotations

import dis
import os
import random
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import exactly_once
from exactly_once import Sink

Line = tuple[str, int]
LEAST_LINES, MOST_LINES = 60, 300


@dataclass(frozen=True)
class KilledSink:
    """Opens a sink; attempt n of the task of sink p dies before the line `plans[p][n]`, or a little later if that line
    is not reached. Later attempts live.

    :param open_sink: as of `exactly_once.run`.
    """

    open_sink: Callable[[int, int], Sink]
    plans: Sequence[Sequence[Line]]
    seed: int

    def __call__(self, sink: int, attempt: int) -> Sink:
        os.fsync = lambda fd: None  # processes die here, not the machine
        if attempt < len(self.plans[sink]):
            lines = random.Random(f"{self.seed}/{sink}/{attempt}").randrange(LEAST_LINES, MOST_LINES)
            _trace(self.plans[sink][attempt], lines)
        return self.open_sink(sink, attempt)


def lines_of(*functions: Any) -> list[Line]:
    """Where they may be killed."""
    codes: list[CodeType] = [function.__code__ for function in functions]
    return [(code.co_filename, line) for code in codes for _, line in list(dis.findlinestarts(code))[1:] if line]


def plans_of(sink: type, seed: int) -> list[list[Line]]:
    """For each of the two sinks half of the lines of the protocol, in an order of the seed. Lines of the recovery come
    after a death between a prepared transaction and its checkpoint, so that there is something to recover."""
    chance = random.Random(seed)
    prepared = lines_of(exactly_once.Checkpoints.save)[0]
    steps: list[list[Line]] = [[line] for line in _steps(sink, "write", "prepare", "commit")]
    steps += [[line] for line in lines_of(exactly_once.Checkpoints.save)]
    steps += [[line] for line in lines_of(exactly_once.consume)[-10:]]
    steps += [[prepared, line] for line in _steps(sink, "recover")]
    chance.shuffle(steps)
    return [[line for step in steps[at::2] for line in step] for at in range(exactly_once.SINKS)]


def _steps(sink: type, *names: str) -> list[Line]:
    return sorted({line for name in names for line in lines_of(getattr(sink, name))})


def _trace(line: Line, lines: int) -> None:
    here = {exactly_once.__file__, line[0]}
    left = lines

    def local(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left < 0 or (frame.f_code.co_filename, frame.f_lineno) == line:
                os.kill(os.getpid(), signal.SIGKILL)
        return local

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        return local if frame.f_code.co_filename in here else None

    sys.settrace(trace)
    caller: FrameType | None = sys._getframe()
    while caller is not None:  # those that run already
        if caller.f_code.co_filename in here:
            caller.f_trace = local
        caller = caller.f_back
