"""Functions of an importable module, run in new processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from typing import Any, TypeVar

T = TypeVar("T")


def at_once(function: Callable[..., T], arguments: Sequence[tuple[Any, ...]], timeout: float) -> list[T]:
    """``function(*each)`` for each of the arguments, at the same time, each in a process of its own.

    Raises what the function raises, and multiprocessing.TimeoutError; no process is left then.
    """
    deadline = time.monotonic() + timeout
    with get_context("spawn").Pool(len(arguments)) as pool:
        running = [pool.apply_async(function, each) for each in arguments]
        return [each.get(max(0.1, deadline - time.monotonic())) for each in running]
