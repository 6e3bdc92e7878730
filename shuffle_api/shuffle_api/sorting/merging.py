"""Sorted batches of several runs as one sorted sequence: a k-way merge that never compares rows in Python.

Each run has a head: its next rows, some thousands. In each round every head is filled up; among the last rows of
those heads that are not their run's end, the lowest one is the cut, as nothing that comes later can be below it. All
rows up to the cut are joined, sorted at once, and handed out. A head whose first row lies above the cut takes no
part: runs that do not overlap are passed on without sorting. Rows with equal keys come in the order of their runs.

Memory: two blocks per run and twice the rows handed out in a round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from shuffle_api.columnar.arrays import taken
from shuffle_api.columnar.order import Order

HEAD_ROWS = 4096
"""Rows that a head has at least, unless its run ends."""


class _RunHead:
    """The next rows of a run, and their keys."""

    __slots__ = ("_order", "_run", "ended", "keys", "rows")

    def __init__(self, run: Iterator[Any], order: Order) -> None:
        self._run, self._order = run, order
        self.rows: Any = None
        self.keys: Any = None
        self.ended = False

    def fill(self) -> None:
        """Have HEAD_ROWS rows, or all that are left."""
        while not self.ended and (self.rows is None or self.rows.num_rows < HEAD_ROWS):
            batch = next(self._run, None)
            if batch is None:
                self.ended = True
            elif self.rows is None:
                self.rows, self.keys = batch, self._order.keys_of(batch)
            elif batch.num_rows:
                self.rows = pa.concat_batches([self.rows, batch])
                self.keys = pa.concat_batches([self.keys, self._order.keys_of(batch)])

    @property
    def empty(self) -> bool:
        return self.rows is None or not self.rows.num_rows

    def drop(self, count: int) -> None:
        """Forget the first rows: they were handed out."""
        self.rows, self.keys = self.rows.slice(count), self.keys.slice(count)


def merge_batches(runs: Sequence[Iterator[Any]], order: Order) -> Iterator[Any]:
    """The rows of sorted runs in one order. A run is an iterator of RecordBatches of one schema, sorted throughout."""
    heads = [_RunHead(run, order) for run in runs]
    while True:
        for head in heads:
            head.fill()
        heads = [head for head in heads if not head.empty]
        if not heads:
            return
        taking, cutter = _round(heads, order)
        if len(taking) == 1:
            yield taking[0].rows
            taking[0].drop(taking[0].rows.num_rows)
        else:
            yield _handed_out(taking, cutter, order)


def _round(heads: list[_RunHead], order: Order) -> tuple[list[_RunHead], _RunHead | None]:
    """The heads with rows up to the cut, in their order; the one whose last row is the cut, None if all have ended."""
    if all(head.ended for head in heads):
        return heads, None
    # First and last rows of all heads, sorted: rows 2i and 2i + 1 are those of head i. Stable, so that of equal
    # rows those of the earlier run come first.
    fences = [part for head in heads for part in (head.keys.slice(0, 1), head.keys.slice(head.keys.num_rows - 1))]
    place = np.empty(len(fences), np.int64)
    place[order.sorted_rows(pa.concat_batches(fences))] = np.arange(len(fences))
    cut = min((i for i, head in enumerate(heads) if not head.ended), key=lambda i: int(place[2 * i + 1]))
    taking = [head for i, head in enumerate(heads) if i == cut or place[2 * i] < place[2 * cut + 1]]
    return taking, heads[cut]


def _handed_out(taking: list[_RunHead], cutter: _RunHead | None, order: Order) -> Any:
    """The rows of these heads up to the cut, sorted; the heads lose them."""
    sizes = [head.rows.num_rows for head in taking]
    rows = order.sorted_rows(pa.concat_batches([head.keys for head in taking]))
    ends = np.cumsum(sizes)
    if cutter is not None:
        last = ends[taking.index(cutter)] - 1
        rows = rows[: int(np.flatnonzero(rows == last)[0]) + 1]
    batch = taken(pa.concat_batches([head.rows for head in taking]), np.ascontiguousarray(rows))
    counts = np.bincount(np.searchsorted(ends, rows, side="right"), minlength=len(taking))
    for head, count in zip(taking, counts.tolist(), strict=True):
        head.drop(count)
    return batch
