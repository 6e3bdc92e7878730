"""What is sent: rings of prepared messages, so that no contender pays for making up data.

A ring is larger than a processor's cache, so every send reads from memory, as it would in a job.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from shuffle_transport.bench.job import Data, Job
from shuffle_transport.blocks import put_batch
from shuffle_transport.checksum import BLOCK_ROW, crc32c

RING_BYTES = 64 << 20
MOST_MESSAGES = 256
ROW = np.dtype([("number", "<i8"), ("price", "<f8"), ("word", "S16"), ("key", "<i8")])


@dataclass(frozen=True, slots=True)
class Prepared:
    """One message: the blocks' table rows (dtype BLOCK_ROW, shape [n]) and their payloads back to back."""

    rows: np.ndarray
    payload: memoryview

    def batch(self) -> pa.RecordBatch:
        """The same as a RecordBatch of a push; the payload is not copied."""
        return put_batch(self.rows, self.payload)


def ring(job: Job) -> tuple[Prepared, ...]:
    """Messages to send in turn, made once per size and kind of data."""
    return _ring(job.message, job.block, job.data)


def batches(job: Job) -> tuple[pa.RecordBatch, ...]:
    """The ring as RecordBatches, ready to be written."""
    return _batches(job.message, job.block, job.data)


@lru_cache(maxsize=4)
def _ring(message: int, block: int, data: Data) -> tuple[Prepared, ...]:
    count = max(2, min(MOST_MESSAGES, RING_BYTES // message))
    return tuple(prepared(message, block, content(message, data, seed)) for seed in range(count))


@lru_cache(maxsize=4)
def _batches(message: int, block: int, data: Data) -> tuple[pa.RecordBatch, ...]:
    return tuple(one.batch() for one in _ring(message, block, data))


def content(size: int, data: Data, seed: int) -> bytes:
    """`size` bytes of that kind."""
    random = np.random.default_rng(seed)
    if data == "noise":
        return random.bytes(size)
    count = size // ROW.itemsize + 1
    rows = np.zeros(count, ROW)
    rows["number"] = np.arange(seed * count, (seed + 1) * count)
    rows["price"] = random.random(count)
    rows["word"] = np.array([f"customer-{n:04d}".encode() for n in range(1000)])[random.integers(0, 1000, count)]
    rows["key"] = random.integers(0, 10_000, count)
    return rows.tobytes()[:size]


def prepared(message: int, block: int, payload: bytes) -> Prepared:
    """One message of `message` bytes in blocks of `block`, with their checksums."""
    rows = np.zeros(message // block, BLOCK_ROW)
    view = memoryview(payload)
    rows["partition"] = np.arange(len(rows)) % 64
    rows["length"] = rows["raw_length"] = block
    rows["records"] = 1
    rows["crc32c"] = [crc32c(view[at : at + block]) for at in range(0, message, block)]
    return Prepared(rows, view)
