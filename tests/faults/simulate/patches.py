"""What a process of the simulation puts in the place of threads, clocks, randomness, files and connections.

Only processes that do nothing else are patched: `python -m tests.faults.simulate` starts one for each processor.
"""

from __future__ import annotations

import gc
import logging
import os
import queue
import random
import sys
import threading
import time
from typing import Any

from tests.faults.simulate import disk
from tests.faults.simulate.locks import Here, Lock, RLock, Thread
from tests.faults.simulate.scheduler import Crash, Scheduler

real_seconds = time.monotonic

MEMORY = 4 << 30
"""Bytes that the page cache of a simulated machine may take."""


def install() -> None:
    """Patch this process; once, and for good, and before anything of the product is imported: its defaults are bound
    then (`clock=time.monotonic`)."""
    import concurrent.futures.thread  # noqa: F401

    import grpc  # noqa: F401  # not the product's: it keeps the real threads and clocks
    import numpy  # noqa: F401  # icn001
    import prometheus_client  # noqa: F401
    import pyarrow.flight  # noqa: F401

    assert not any(name.startswith("shuffle_") for name in sys.modules), "the product was imported before"
    logging.logThreads = logging.logProcesses = False
    Here.scheduler = Scheduler(0, 0.0)
    _set(queue, SimpleQueue=queue._PySimpleQueue)  # type: ignore[attr-defined]
    _set(threading, Lock=Lock, RLock=RLock, Thread=Thread, _allocate_lock=Lock, _time=_monotonic)
    _set(threading, current_thread=lambda: Here.scheduler.current, get_ident=lambda: id(Here.scheduler.current))
    _set(time, monotonic=_monotonic, time=_wall, sleep=_sleep, clock_gettime=_clock)
    _set(os, urandom=_bytes, **disk.wrappers())
    _set(random, _urandom=_bytes)
    from tests.faults.simulate import network

    network.install()
    _set(sys.modules["shuffle_api.periodic"], _TASKS=_Tasks())
    _set(sys.modules["shuffle_server.observe.instruments"], Counter=_Silent, Histogram=_Silent)
    _set(sys.modules["shuffle_server.store.page_cache"], available=lambda: MEMORY)
    sys.unraisablehook = _ignore
    gc.collect()
    gc.freeze()  # a collection after each schedule then takes a millisecond


class _Tasks:
    """The periodic tasks of the simulated process whose code runs; the product has one dict for each real process."""

    def __setitem__(self, id: int, task: object) -> None:
        Here.scheduler.me().process.tasks[id] = task

    def pop(self, id: int, default: None) -> object:
        return Here.scheduler.me().process.tasks.pop(id, default)

    def values(self) -> list[object]:
        return list(Here.scheduler.me().process.tasks.values())


class _Silent:
    """A metric that counts nothing: to make those of a server takes as long as to start it."""

    def __init__(self, *_: Any, **__: Any) -> None: ...
    def labels(self, *_: Any) -> _Silent:
        return self

    def inc(self, amount: float = 1) -> None: ...
    def observe(self, amount: float) -> None: ...


def _set(target: Any, **values: Any) -> None:
    for name, value in values.items():
        setattr(target, name, value)


def _monotonic() -> float:
    return Here.scheduler.monotonic()


def _wall() -> float:
    return Here.scheduler.wall()


def _clock(which: int) -> float:
    if which == time.CLOCK_REALTIME:
        return Here.scheduler.wall()
    return Here.scheduler.boottime() if which == time.CLOCK_BOOTTIME else Here.scheduler.monotonic()


def _sleep(seconds: float) -> None:
    Here.scheduler.sleep(seconds)


def _bytes(count: int) -> bytes:
    return Here.random.randbytes(count)


def _ignore(raised: Any) -> None:
    """Generators of processes that were killed are closed at some time, and then find themselves dead. Objects
    collected after a schedule find locks that belong to nobody."""
    if not (issubclass(raised.exc_type, Crash) or Here.scheduler.ending):
        sys.__unraisablehook__(raised)
