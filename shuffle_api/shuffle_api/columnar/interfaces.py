"""The optional ability to shuffle Arrow's RecordBatches, as writers and readers offer it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from shuffle_api.columnar.partitioners import Partitioner


@runtime_checkable
class SupportsWriteBatch(Protocol):
    """A writer that takes RecordBatches, in a shuffle of content `arrow`."""

    def write_batch(self, batch: Any, partitioner: Partitioner) -> None:
        """Append the rows of a `pyarrow.RecordBatch`, each to the partition that `partitioner` says.

        The order of rows within a partition is kept. All batches of an attempt have one schema. Column data is
        copied; a batch without rows leaves no trace. May wait for room, as `ShuffleWriter.write` may.

        :raises InvalidArgument: as `ShuffleWriter.write`; the content is not `arrow`; the schema is not that of the
            batch before; a column that Arrow cannot reorder (views, run-end encoded); what the partitioner raises.
        """


@runtime_checkable
class SupportsReadBatches(Protocol):
    """A reader that hands out RecordBatches, of a shuffle of content `arrow`."""

    def read_batches(self) -> Iterator[tuple[int, Any]]:
        """Yield `(partition, RecordBatch)`, instead of iterating: no batch is empty, no order between maps is kept.

        Raises what iterating raises, and:

        :raises InvalidArgument: the content is not `arrow`, or two maps wrote different schemas.
        """
