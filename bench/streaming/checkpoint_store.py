"""What tasks store of a checkpoint, in files: positions always, an operator's whole state each time or now and then."""

from __future__ import annotations

import pickle
import queue
import threading
import time
from pathlib import Path
from typing import Self

import numpy as np

from bench.streaming.plan import Case, Task
from shuffle_api.streaming import ReaderState, WriterState

CHUNK_BYTES = 64 << 10

Chunks = tuple[np.ndarray, ...]


class KeyedState:
    """State of a given size, in chunks that are copied when they change after a snapshot was taken.

    As Flink's copy-on-write state table: a snapshot costs a list of references, whatever the size.
    """

    def __init__(self, size: int) -> None:
        self._chunks = [np.zeros(CHUNK_BYTES // 8, np.int64) for _ in range(-(-size // CHUNK_BYTES))]
        self._shared = [False] * len(self._chunks)
        self._turn = 0

    def update(self, records: int) -> None:
        """A block was processed: it counts in one of the chunks."""
        if not self._chunks:
            return
        self._turn = (self._turn + 1) % len(self._chunks)
        if self._shared[self._turn]:
            self._chunks[self._turn], self._shared[self._turn] = self._chunks[self._turn].copy(), False
        self._chunks[self._turn][records % (CHUNK_BYTES // 8)] += records

    def snapshot(self) -> Chunks:
        """As it is now; it stays so."""
        self._shared = [True] * len(self._chunks)
        return tuple(self._chunks)


class CheckpointStore:
    """Writes one task's parts of checkpoints, by threads beside it. A context manager: leaving it writes what is left.

    With a log a checkpoint is whole without the state. That is materialized by a thread of its own then, so that the
    next checkpoint does not wait for the last one's state.

    :ivar stored_ms: by checkpoint, how long after its barrier was due this task's part was stored.
    """

    def __init__(self, task: Task) -> None:
        self.stored_ms: dict[int, float] = {}
        self._written = {"positions": 0, "state": 0}
        self._case, self._start = task.case, task.start
        self._name = f"{task.role}-{task.index}"
        self._parts: queue.SimpleQueue[tuple[int, WriterState | ReaderState, Chunks | None] | None]
        self._parts = queue.SimpleQueue()
        self._states: queue.SimpleQueue[tuple[int, Chunks] | None] = queue.SimpleQueue()
        self._materialized: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._store, name="checkpoint-store"),
            threading.Thread(target=self._materialize, name="checkpoint-materialize"),
        ]

    @property
    def stored_bytes(self) -> int:
        """So far."""
        return sum(self._written.values())

    def whole(self, checkpoint: int) -> bool:
        """At this checkpoint all of the state is stored."""
        return checkpoint % self._case.materialize_every == 0

    def put(self, checkpoint: int, state: WriterState | ReaderState, chunks: Chunks | None = None) -> None:
        """Store a part; returns at once."""
        self._parts.put((checkpoint, state, chunks))

    def materialized(self) -> list[int]:
        """Checkpoints since the last call whose whole state is stored."""
        found = []
        while not self._materialized.empty():
            found.append(self._materialized.get())
        return found

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.put(None)
        for thread in self._threads:
            thread.join()

    def _store(self) -> None:
        while (part := self._parts.get()) is not None:
            checkpoint, state, chunks = part
            self._write("positions", pickle.dumps(state))
            later = chunks is not None and logged(self._case)
            if chunks is not None and not later:
                self._write_state(checkpoint, chunks)
            self.stored_ms[checkpoint] = (time.monotonic() - self._start - checkpoint * self._case.checkpoint_s) * 1e3
            if chunks is not None and later:
                self._states.put((checkpoint, chunks))
        self._states.put(None)

    def _materialize(self) -> None:
        while (found := self._states.get()) is not None:
            self._write_state(*found)

    def _write_state(self, checkpoint: int, chunks: Chunks) -> None:
        self._write("state", *(chunk.data for chunk in chunks))
        self._materialized.put(checkpoint)

    def _write(self, what: str, *pieces: bytes | memoryview) -> None:
        path = Path(self._case.stored) / f"{self._name}-{what}"
        with open(f"{path}.new", "wb", buffering=0) as file:
            for piece in pieces:
                file.write(piece)
                self._written[what] += memoryview(piece).nbytes
        Path(f"{path}.new").replace(path)


def logged(case: Case) -> bool:
    """What is between materializations is replayed from the producers' logs."""
    return "log_dir" in case.options and case.materialize_every > 1
