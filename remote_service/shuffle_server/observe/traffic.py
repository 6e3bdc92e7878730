"""What went through a worker: plain numbers under one lock, which is taken once per message of many blocks.

Prometheus' own counters would take a lock each; these are read when somebody looks (collector.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrafficTotals:
    """Totals since the start, but for the streams, which are those open now. Bytes are payload."""

    pushed_messages: int
    pushed_blocks: int
    pushed_bytes: int
    discarded_bytes: int
    pulled_messages: int
    pulled_blocks: int
    pulled_bytes: int
    adopted_bytes: int
    located_bytes: int
    credit_stalls: int
    credit_stall_seconds: float
    open_pushes: int
    open_pulls: int


class Traffic:
    """Counts. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pushed_messages = self._pushed_blocks = self._pushed_bytes = self._discarded_bytes = 0
        self._pulled_messages = self._pulled_blocks = self._pulled_bytes = 0
        self._adopted_bytes = self._located_bytes = 0
        self._credit_stalls, self._credit_stall_seconds = 0, 0.0
        self._open_pushes = self._open_pulls = 0

    def pushed(self, blocks: int, bytes: int, discarded: int = 0) -> None:
        """A message of a push was taken in: what of it was kept, and the bytes that were not."""
        with self._lock:
            self._pushed_messages += 1
            self._pushed_blocks += blocks
            self._pushed_bytes += bytes
            self._discarded_bytes += discarded

    def pulled(self, blocks: int, bytes: int) -> None:
        """A message of a pull was handed over to Flight."""
        with self._lock:
            self._pulled_messages += 1
            self._pulled_blocks += blocks
            self._pulled_bytes += bytes

    def adopted(self, blocks: int, bytes: int) -> None:
        """A map output was taken in as a file: pushed, but without messages."""
        with self._lock:
            self._pushed_blocks += blocks
            self._pushed_bytes += bytes
            self._adopted_bytes += bytes

    def located(self, blocks: int, bytes: int) -> None:
        """A client was told where these lie: pulled, but without messages."""
        with self._lock:
            self._pulled_blocks += blocks
            self._pulled_bytes += bytes
            self._located_bytes += bytes

    def stalled(self, seconds: float) -> None:
        """A sender was out of credit for so long."""
        with self._lock:
            self._credit_stalls += 1
            self._credit_stall_seconds += seconds

    @contextmanager
    def push(self) -> Iterator[None]:
        """A push stream is open inside."""
        with self._lock:
            self._open_pushes += 1
        try:
            yield
        finally:
            with self._lock:
                self._open_pushes -= 1

    @contextmanager
    def pull(self) -> Iterator[None]:
        """A pull is open inside."""
        with self._lock:
            self._open_pulls += 1
        try:
            yield
        finally:
            with self._lock:
                self._open_pulls -= 1

    def totals(self) -> TrafficTotals:
        """All of it at one moment."""
        with self._lock:
            return TrafficTotals(
                pushed_messages=self._pushed_messages,
                pushed_blocks=self._pushed_blocks,
                pushed_bytes=self._pushed_bytes,
                discarded_bytes=self._discarded_bytes,
                pulled_messages=self._pulled_messages,
                pulled_blocks=self._pulled_blocks,
                pulled_bytes=self._pulled_bytes,
                adopted_bytes=self._adopted_bytes,
                located_bytes=self._located_bytes,
                credit_stalls=self._credit_stalls,
                credit_stall_seconds=self._credit_stall_seconds,
                open_pushes=self._open_pushes,
                open_pulls=self._open_pulls,
            )


class CreditStalls:
    """When a sender had to wait for credit, as far as the receiver can tell: follows one push stream.

    A message that is larger than the credit its sender had left after the one before cannot have been sent before the
    next grant: that was a stall. It lasted, at this end, from the arrival of the message before to that grant; the way
    there and back is not in it.
    """

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._left = 0
        self._since = 0.0
        self._granted: float | None = None

    def arrived(self, size: int, credit: int) -> None:
        """A message of `size` payload bytes came; its sender had `credit` for it."""
        if self._granted is not None and size > self._left:
            self._traffic.stalled(self._granted - self._since)
        self._left, self._granted, self._since = credit - size, None, time.monotonic()

    def granted(self) -> None:
        """The sender was granted more."""
        self._granted = time.monotonic()
