"""Sorted batches of several runs as one sorted sequence: a k-way merge that never compares rows in Python.

Each run has a head: its next rows, some thousands. In each round every head is filled up; among the last rows of
those heads that are not their run's end, the lowest one is the cut, as nothing that comes later can be below it. All
rows up to the cut are joined, sorted at once, and handed out. A head whose first row lies above the cut takes no
part: runs that do not overlap are passed on without sorting. Rows with equal keys come in the order of their runs.

Memory: HEAD_BYTES and a block per run, and twice the rows handed out in a round. Each row is copied twice at most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shuffle_api.columnar.arrays import data_bytes, taken
from shuffle_api.columnar.joining import joined
from shuffle_api.columnar.order import Order

HEAD_ROWS = 4096
"""Rows that a head has at least, unless its run ends,"""

HEAD_BYTES = 512 << 10
"""or they have so many bytes."""


class _RunHead:
    """The next rows of a run, in the batches in which they came, and their keys, all in one.

    :ivar rows: how many they are.
    """

    __slots__ = ("_batches", "_bytes", "_order", "_run", "ended", "keys", "rows")

    def __init__(self, run: Iterator[Any], order: Order) -> None:
        self._run, self._order = run, order
        self._batches: deque[Any] = deque()
        self._bytes = self.rows = 0
        self.keys: Any = None
        self.ended = False

    def fill(self) -> None:
        """Have HEAD_ROWS rows or HEAD_BYTES bytes, or all that are left."""
        keys = [self.keys] if self.rows else []
        while not self.ended and self.rows < HEAD_ROWS and self._bytes < HEAD_BYTES:
            batch = next(self._run, None)
            if batch is None:
                self.ended = True
            elif batch.num_rows:
                self._batches.append(batch)
                self.rows += batch.num_rows
                self._bytes += data_bytes(batch)
                keys.append(self._order.keys_of(batch))
        if keys:
            self.keys = joined(keys)

    def take(self, count: int) -> list[Any]:
        """The first rows, which the head has no more."""
        self.keys = self.keys.slice(count)
        self.rows -= count
        found = []
        while count:
            batch = self._batches.popleft()
            part = batch.slice(0, count)
            if part.num_rows < batch.num_rows:
                self._batches.appendleft(batch.slice(count))
            self._bytes -= data_bytes(part)
            count -= part.num_rows
            found.append(part)
        return found


def merge_batches(runs: Sequence[Iterator[Any]], order: Order) -> Iterator[Any]:
    """The rows of sorted runs in one order. A run is an iterator of RecordBatches of one schema, sorted throughout.

    Where dictionaries outgrow their indexes a batch has wider ones (`shuffle_api.columnar.joining`).
    """
    heads = [_RunHead(run, order) for run in runs]
    while True:
        for head in heads:
            head.fill()
        heads = [head for head in heads if head.rows]
        if not heads:
            return
        taking, cutter = _round(heads, order)
        if len(taking) == 1:
            yield from taking[0].take(taking[0].rows)
        else:
            yield _handed_out(taking, cutter, order)


def _round(heads: list[_RunHead], order: Order) -> tuple[list[_RunHead], _RunHead | None]:
    """The heads with rows up to the cut, in their order; the one whose last row is the cut, None if all have ended."""
    if all(head.ended for head in heads):
        return heads, None
    # First and last rows of all heads, sorted: rows 2i and 2i + 1 are those of head i. Stable, so that of equal
    # rows those of the first run come first.
    fences = [part for head in heads for part in (head.keys.slice(0, 1), head.keys.slice(head.rows - 1))]
    place = np.empty(len(fences), np.int64)
    place[order.sorted_rows(joined(fences))] = np.arange(len(fences))
    cut = min((i for i, head in enumerate(heads) if not head.ended), key=lambda i: int(place[2 * i + 1]))
    taking = [head for i, head in enumerate(heads) if i == cut or place[2 * i] < place[2 * cut + 1]]
    return taking, heads[cut]


def _handed_out(taking: list[_RunHead], cutter: _RunHead | None, order: Order) -> Any:
    """The rows of these heads up to the cut, sorted; the heads lose them."""
    ends = np.cumsum([head.rows for head in taking])
    rows = order.sorted_rows(joined([head.keys for head in taking]))
    if cutter is not None:
        last = ends[taking.index(cutter)] - 1
        rows = rows[: int(np.flatnonzero(rows == last)[0]) + 1]
    owners = np.searchsorted(ends, rows, side="right")
    counts = np.bincount(owners, minlength=len(taking))
    # Of each head its first rows are taken: where those begin among all that are taken, and where its rows did.
    shifts = (np.cumsum(counts) - counts) - np.concatenate([[0], ends[:-1]])
    parts = [part for head, count in zip(taking, counts.tolist(), strict=True) for part in head.take(count)]
    return taken(joined(parts), rows + shifts[owners])
