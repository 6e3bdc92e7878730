"""Identity: records of 20 bytes go in, 50 bytes come out: the record, when it was made, when it was here.

A record is its time (nanoseconds of the machine's monotonic clock, the same in all its processes), its number, and four
bytes more. Everything works on whole blocks with numpy.
"""

from __future__ import annotations

import pickle
import time

import numpy as np

from shuffle_api.buffer import Buffer
from shuffle_api.columnar.rows import framed, rows_of

RECORD = np.dtype([("made", "<i8"), ("number", "<i8"), ("rest", "S4")])
RAW = np.dtype(f"V{RECORD.itemsize}")  # a record as bytes: numpy copies those three times as fast as fields
ANSWER = np.dtype([("record", RAW), ("made", "<i8"), ("seen", "<i8"), ("rest", "S14")])
PIECE = 5000  # records that are answered at once: they and their answers fit into the processor's own cache
SAMPLE = 16  # every so many records' latency is kept, as Flink's side does

assert (RECORD.itemsize, ANSWER.itemsize) == (20, 50)


class Maker:
    """Blocks of up to `most` records with ascending numbers. Laid out once; only times and numbers change."""

    def __init__(self, most: int, first: int, step: int) -> None:
        self._block = _with_aligned_times(most)
        self._block["length"] = RECORD.itemsize
        self._block["row"]["rest"] = b"rest"
        self._offsets = np.arange(most, dtype=np.int64) * step
        self._zeros = np.zeros(most, np.int64)
        self._next, self._step = first, step
        self.number_sum = 0

    def block(self, count: int, made: np.ndarray | int) -> bytes:
        """`count` records made at `made`, framed."""
        block, rows = self._block[:count], self._block["row"][:count]
        np.add(self._zeros[:count], made, out=rows["made"])
        np.add(self._offsets[:count], self._next, out=rows["number"])
        self.number_sum += self._next * count + self._step * (count * (count - 1) // 2)
        self._next += count * self._step
        return block.tobytes()


def _with_aligned_times(most: int) -> np.ndarray:
    """A block whose times and numbers, behind the four bytes of each length, lie where the processor likes them.

    Numpy writes to them in place then; else by way of a buffer, which takes three times as long.
    """
    layout = framed(RECORD)
    memory = np.zeros(most * layout.itemsize + 8, np.uint8)
    start = -(memory.ctypes.data + layout.itemsize - RECORD.itemsize) % 8
    return memory[start : start + most * layout.itemsize].view(layout)


class Operator:
    """Makes the answers; its sink keeps counts, a checksum of numbers, and a sample of latencies."""

    def __init__(self) -> None:
        self.records = self.number_sum = self.windows = 0
        self._latencies: list[np.ndarray] = []
        self._answers = np.zeros(PIECE, framed(ANSWER))
        self._answers["length"] = ANSWER.itemsize
        self._zeros = np.zeros(PIECE, np.int64)

    def take(self, payload: Buffer) -> int:
        """Process one block; the number of its records."""
        rows = rows_of(payload, RECORD)
        count = len(rows)
        seen = time.monotonic_ns()
        for at in range(0, count, PIECE):
            self._answer(rows[at : at + PIECE], seen)
        self._sink(rows, seen)
        return count

    def answers(self, count: int) -> np.ndarray:
        """The first `count` answers to the piece taken last; valid until the next."""
        rows: np.ndarray = self._answers["row"][:count]
        return rows

    def _answer(self, rows: np.ndarray, seen: int) -> None:
        answers = self.answers(len(rows))
        answers["record"] = rows.view(RAW)
        # Adding is how numpy writes to unaligned fields fastest.
        np.add(rows["made"], 0, out=answers["made"])
        np.add(self._zeros[: len(rows)], seen, out=answers["seen"])

    def snapshot(self) -> bytes:
        """The state, as a checkpoint keeps it."""
        return pickle.dumps((self.records, self.number_sum))

    def latencies_ms(self) -> np.ndarray:
        """The sample, in the order of arrival."""
        return np.concatenate(self._latencies or [np.zeros(0)])

    def _sink(self, rows: np.ndarray, seen: int) -> None:
        self._latencies.append((seen - rows["made"][-self.records % SAMPLE :: SAMPLE]) / 1e6)
        self.records += len(rows)
        self.number_sum += int(rows["number"].sum())
