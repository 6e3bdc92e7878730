"""Compression of what would have to wait: a batch for which there is no credit is made smaller meanwhile.

A streaming channel sends raw while its receiver keeps up: then compression would cost time and save none. Without
credit the sender waits anyway. Large batches are compressed by several threads, since all codecs run without the
interpreter lock.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from shuffle_api.buffer import Buffer
from shuffle_transport.checksum import crc32c
from shuffle_transport.codecs import Codec, NoneCodec

PARALLEL_FROM = 256 << 10
"""Payload bytes of a batch from which on several threads compress it: handing over costs about 50 us."""

_THREADS = min(4, os.cpu_count() or 1)


class BackpressureCompressor:
    """Compresses batches. Thread-safe; starts its threads with the first large batch. Close it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    def compress(self, codec: Codec, rows: np.ndarray, payload: Buffer) -> tuple[np.ndarray, Buffer]:
        """The batch with each block compressed that shrinks; blocks that are compressed already stay as they are.

        :returns: a new table with the stored lengths and their checksums, and the payloads back to back; the arguments
            themselves if nothing shrinks.
        """
        if isinstance(codec, NoneCodec):
            return rows, payload
        view = memoryview(payload).cast("B")
        ends = np.cumsum(rows["length"]).tolist()
        blocks = [view[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        raw = (rows["length"] == rows["raw_length"]).tolist()
        stored = self._map(codec, [block if is_raw else None for block, is_raw in zip(blocks, raw, strict=True)])
        if not any(piece is not None for piece in stored):
            return rows, payload
        rows = rows.copy()
        for i, piece in enumerate(stored):
            if piece is not None:
                rows["length"][i], rows["crc32c"][i] = memoryview(piece).nbytes, crc32c(piece)
        return rows, b"".join(block if piece is None else piece for piece, block in zip(stored, blocks, strict=True))

    def close(self) -> None:
        """End the threads. Idempotent; batches are compressed by who sends them from then on."""
        with self._lock:
            self._closed, pool, self._pool = True, self._pool, None
        if pool is not None:
            pool.shutdown()

    def _map(self, codec: Codec, blocks: Sequence[memoryview | None]) -> list[Buffer | None]:
        size = sum(len(block) for block in blocks if block is not None)
        pool = self._threads() if size >= PARALLEL_FROM and _THREADS > 1 and len(blocks) > 1 else None
        if pool is None:
            return _compressed(codec, blocks)
        step = -(-len(blocks) // _THREADS)
        parts = [blocks[i : i + step] for i in range(0, len(blocks), step)]
        try:
            others = [pool.submit(_compressed, codec, part) for part in parts[1:]]
        except RuntimeError:  # it was closed a moment ago
            return _compressed(codec, blocks)
        found = _compressed(codec, parts[0])
        for other in others:
            found += other.result()
        return found

    def _threads(self) -> ThreadPoolExecutor | None:
        with self._lock:
            if self._pool is None and not self._closed:
                self._pool = ThreadPoolExecutor(_THREADS - 1, "exchange-squeeze")
            return self._pool


def _compressed(codec: Codec, blocks: Sequence[memoryview | None]) -> list[Buffer | None]:
    return [None if block is None else codec.compress(block) for block in blocks]
