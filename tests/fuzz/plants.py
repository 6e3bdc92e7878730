"""Targets that go wrong on purpose, for fuzzing to find."""

from __future__ import annotations

import os
import signal
import time

from tests.fuzz.targets import Target, constant


def crash(data: bytes) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def wait(data: bytes) -> None:
    time.sleep(600)


def fail(data: bytes) -> None:
    raise KeyError(data)


def allocate(data: bytes) -> None:
    bytearray(1 << 40)


PLANTS = {
    read.__name__: Target(read.__name__, lambda directory: [b"good"], constant(read))
    for read in (crash, wait, fail, allocate)
}
