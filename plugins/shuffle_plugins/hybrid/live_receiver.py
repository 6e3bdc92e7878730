"""A reader's thread for one live attempt of one map: connects, receives until the end, or until that breaks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from shuffle_api.errors import DeadlineExceeded
from shuffle_api.periodic import StreamThread
from shuffle_plugins.pipelined.producer_registry import ProducerLocation
from shuffle_plugins.pipelined.source import Source

if TYPE_CHECKING:
    from shuffle_plugins.hybrid.input_gate import HybridInputGate

Open: TypeAlias = Callable[[ProducerLocation], Source]
"""Connects to an attempt. Raises ShuffleError."""

_LOOK = 0.5  # seconds between looks whether the reader is closing, while nothing comes
_GOODBYE = 5.0  # seconds for the writer to hear that all was received


class LiveReceiver:
    """Feeds one input of an input gate with what `location` offers."""

    def __init__(self, location: ProducerLocation, gate: HybridInputGate, open: Open) -> None:
        self.location, self._gate, self._open = location, gate, open
        self._lock = threading.Lock()
        self._source: Source | None = None
        self._stopping = False
        self._thread = StreamThread(f"hybrid-input-{location.output.map}", self._receive_all, partial(gate.broke, self))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let the thread end, soon. Idempotent."""
        with self._lock:
            self._stopping = True
            source = self._source
        if source is not None:
            source.close()

    def join(self) -> None:
        """Wait until the thread has ended; after `stop`."""
        if self._thread.is_alive():
            self._thread.join()

    def _receive_all(self) -> None:
        source = self._open(self.location)
        try:
            with self._lock:
                self._source = source
                if self._stopping:
                    return
            self._gate.found(self)
            while not self._stopping:
                try:
                    received = source.receive(_LOOK)
                except DeadlineExceeded:
                    continue
                for stored in self._gate.put(self, source, received):
                    source.release(stored)
                if received.marks:  # the end: it is the only one that comes here
                    self._gate.wait_until_drained(self)
                    source.finish(_GOODBYE)
                    return
        finally:
            source.close()
