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

CHUNK_BYTES = 512 << 10

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
    """Writes one task's parts of checkpoints, by a thread beside it. A context manager: leaving it writes what is left.

    :ivar stored_ms: by checkpoint, how long after its barrier was due this task's part was stored.
    """

    def __init__(self, task: Task) -> None:
        self.stored_ms: dict[int, float] = {}
        self.bytes = 0
        self._case, self._start = task.case, task.start
        self._name = f"{task.role}-{task.index}"
        self._parts: queue.SimpleQueue[tuple[int, WriterState | ReaderState, Chunks | None] | None]
        self._parts = queue.SimpleQueue()
        self._materialized: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="checkpoint-store")

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
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (part := self._parts.get()) is not None:
            checkpoint, state, chunks = part
            self._write(f"{self._name}-positions", pickle.dumps(state))
            # With a log the checkpoint is whole without it: the materialization is for later ones.
            if chunks is not None and not logged(self._case):
                self._write(f"{self._name}-state", *(chunk.data for chunk in chunks))
            self.stored_ms[checkpoint] = (time.monotonic() - self._start - checkpoint * self._case.checkpoint_s) * 1e3
            if chunks is not None:
                if logged(self._case):
                    self._write(f"{self._name}-state", *(chunk.data for chunk in chunks))
                self._materialized.put(checkpoint)

    def _write(self, name: str, *pieces: bytes | memoryview) -> None:
        path = Path(self._case.stored) / name
        with open(f"{path}.new", "wb", buffering=0) as file:
            for piece in pieces:
                file.write(piece)
                self.bytes += memoryview(piece).nbytes
        Path(f"{path}.new").replace(path)


def logged(case: Case) -> bool:
    """What is between materializations is replayed from the producers' logs."""
    return "log_dir" in case.options and case.materialize_every > 1
