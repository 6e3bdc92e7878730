"""What readers have in common that read whole blocks: the records in them, and Arrow batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from shuffle_api.buffer import Buffer
from shuffle_api.columnar.reading import batches_of, check_records
from shuffle_api.errors import BlockCorrupt, InvalidArgument
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import ShuffleReader
from shuffle_api.records import unpack_records
from shuffle_api.values import ShuffleSpec


class BlocksReader(ShuffleReader):
    """A reader of the shuffle `spec`, until `_open` is False."""

    def __init__(self, spec: ShuffleSpec) -> None:
        self._spec = spec
        self._open = True

    @abstractmethod
    def read_blocks(self) -> Iterator[tuple[int, MapAttempt, Buffer, int]]:
        """Whole blocks, decompressed: (partition, map output, payload, records)."""

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        check_records(self._spec, "read_batches() or read_blocks()")
        for partition, output, payload, records in self.read_blocks():
            count = 0
            for record in unpack_records(payload):
                if not self._open:
                    self._check_open()
                count += 1
                yield partition, record
            if count != records:
                raise BlockCorrupt(
                    f"a block of partition {partition} says {records} records and holds {count}",
                    shuffle=self._spec.id,
                    output=output,
                )

    def read_batches(self) -> Iterator[tuple[int, Any]]:
        """See `shuffle_api.columnar.SupportsReadBatches`."""
        return batches_of(self, self._spec)

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidArgument("the reader is closed", remedy="open a new one", shuffle=self._spec.id)
