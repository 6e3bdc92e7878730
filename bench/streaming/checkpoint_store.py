"""What tasks store of a checkpoint, in files: positions always, an operator's whole state each time or now and then."""

from __future__ import annotations

import os
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
SYNC_CHUNKS = 64

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


class StateFiles:
    """Two files that the whole state is written to in turn, and the name of the one that is complete.

    They are written over, and a few MiB at a time reach the disk. Were a file of the whole state replaced instead, the
    file system would write all of it before the next small file's name is on disk (ext4: data before the journal), and
    the checkpoint that waits for that name would take the longer the larger the state is. One thread writes.

    :ivar stored_bytes: so far.
    """

    def __init__(self, name: Path) -> None:
        self.stored_bytes = 0
        self._name, self._turn = name, 0

    def write(self, chunks: Chunks) -> None:
        """Write all of a state."""
        self._turn = 1 - self._turn
        path = Path(f"{self._name}-{self._turn}")
        file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            written = 0
            for first in range(0, len(chunks), SYNC_CHUNKS):
                written += os.pwritev(file, [chunk.data for chunk in chunks[first : first + SYNC_CHUNKS]], written)
                os.fdatasync(file)
        finally:
            os.close(file)
        self.stored_bytes += written
        replace(self._name, path.name.encode())


def replace(path: Path, content: bytes) -> None:
    """Give a small file another content at once."""
    new = Path(f"{path}.new")
    new.write_bytes(content)
    new.replace(path)


class CheckpointStore:
    """Writes one task's parts of checkpoints, by threads beside it. A context manager: leaving it writes what is left.

    With a log a checkpoint is whole without the state. That is materialized by a thread of its own then, so that the
    next checkpoint does not wait for the last one's state.

    :ivar stored_ms: by checkpoint, how long after its barrier was due this task's part was stored.
    """

    def __init__(self, task: Task) -> None:
        self.stored_ms: dict[int, float] = {}
        self._positions_bytes = 0
        self._case, self._start = task.case, task.start
        files = Path(task.case.stored) / f"{task.role}-{task.index}"
        self._positions = files.with_name(f"{files.name}-positions")
        self._state = StateFiles(files.with_name(f"{files.name}-state"))
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
        return self._positions_bytes + self._state.stored_bytes

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
            replace(self._positions, positions := pickle.dumps(state))
            self._positions_bytes += len(positions)
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
        self._state.write(chunks)
        self._materialized.put(checkpoint)


def logged(case: Case) -> bool:
    """What is between materializations is replayed from the producers' logs."""
    return "log_dir" in case.options and case.materialize_every > 1
