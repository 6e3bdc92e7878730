"""Windowed word count: lines of JSON, 150 bytes each, are parsed at the source; every tenth of a word is a window.

Lines come from a table that is made once, as on Flink's side, so that making them costs neither of them much.
"""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from shuffle_api.buffer import Buffer
from shuffle_api.columnar import HashPartitioner
from shuffle_api.columnar.rows import frame_rows, rows_of

LINE_BYTES, WINDOW, TABLE = 150, 10, 8192
WORD = np.dtype("S10")
FRAMED = WORD.itemsize + 4
_PARSE = pj.ParseOptions(explicit_schema=pa.schema([("word", pa.string())]), unexpected_field_behavior="ignore")
_READ = pj.ReadOptions(use_threads=False, block_size=4 << 20)


def line(number: int, words: int) -> bytes:
    """Line `number` of the table, without its line break."""
    head = b'{"number": %12d, "word": "word%06d", "text": "' % (number, number * 7919 % words)
    return head.ljust(LINE_BYTES - 2, b"x") + b'"}'


class Lines:
    """The table, as text in pieces of `piece` lines."""

    def __init__(self, words: int, piece: int) -> None:
        self._pieces = [
            b"".join(line(number, words) + b"\n" for number in range(first, min(first + piece, TABLE)))
            for first in range(0, TABLE, piece)
        ]
        self._turn = 0

    def next(self, most: int) -> bytes:
        """The next piece, cut to `most` lines."""
        piece = self._pieces[self._turn % len(self._pieces)]
        self._turn += 1
        return piece[: most * (LINE_BYTES + 1)]


def parse(text: bytes) -> pa.RecordBatch:
    """Lines to a column of words."""
    # A stream of Arrow's own: one of Python's would take twice as long.
    table = pj.read_json(pa.BufferReader(text), read_options=_READ, parse_options=_PARSE)
    batch = table.combine_chunks().to_batches()[0]
    assert isinstance(batch, pa.RecordBatch)
    return batch


def by_partition(batch: pa.RecordBatch, partitions: int) -> dict[int, bytes]:
    """The words of each partition as a block: equal words meet in one partition."""
    words = fixed(batch["word"])
    if partitions == 1:
        return {0: frame_rows(words)}
    targets = np.asarray(HashPartitioner("word").partitions_of(batch, partitions))
    return {p: frame_rows(words[targets == p]) for p in range(partitions)}


def fixed(column: pa.Array) -> np.ndarray:
    """A column of texts of ten bytes as numpy rows."""
    _, _, data = column.buffers()
    start = column.offset * WORD.itemsize
    return np.frombuffer(data, WORD, count=len(column), offset=start)


class Counter:
    """Counts words; ten of a word are a window. The state is a count per word."""

    def __init__(self) -> None:
        self.records = self.number_sum = self.windows = 0
        self._ids: dict[bytes, int] = {}
        self._counts = np.zeros(1024, np.int64)

    def take(self, payload: Buffer) -> int:
        """Process one block; the number of its records."""
        words = rows_of(payload, WORD)
        column = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(WORD.itemsize), len(words), [None, pa.py_buffer(np.ascontiguousarray(words))]
        ).dictionary_encode()
        ids = np.array([self._ids.setdefault(word, len(self._ids)) for word in column.dictionary.to_pylist()])
        if len(self._ids) > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros(len(self._ids), np.int64)])
        new = np.bincount(column.indices.to_numpy(), minlength=len(ids))
        before = self._counts[ids]
        self.windows += int(((before + new) // WINDOW - before // WINDOW).sum())
        self._counts[ids] = before + new
        self.records += len(words)
        return len(words)

    def snapshot(self) -> bytes:
        """The state, as a checkpoint keeps it."""
        return pickle.dumps((self._ids, self._counts))

    def latencies_ms(self) -> np.ndarray:
        """Words carry no time."""
        return np.zeros(0)


def expected_windows(records: int, sources: int, words: int) -> int:
    """Windows after `sources` sources have sent `records` lines each."""
    table = np.arange(TABLE) * 7919 % words
    times, rest = divmod(records, TABLE)
    counts = (np.bincount(table, minlength=words) * times + np.bincount(table[:rest], minlength=words)) * sources
    return int((counts // WINDOW).sum())
