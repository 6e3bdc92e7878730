"""What stands in a writer's queue: blocks and markers, in the order written."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, TypeAlias

from shuffle_api.buffer import Buffer
from shuffle_api.streaming import Barrier, InFlight, Marker
from shuffle_plugins.pipelined.payload_file import PayloadRange
from shuffle_transport.checksum import crc32c


class SequencedBlock(NamedTuple):
    """Records of one partition.

    :ivar number: counts the blocks of this writer and partition.
    :ivar order: the place among everything this writer wrote.
    :ivar payload: unchanging; empty if it lies in a file.
    :ivar checksum: crc32c of the payload, made when the block was written, if there is a log on disk.
    :ivar place: where the payload lies in a file, if it takes no memory.
    :ivar written_at: time.monotonic() in the writer's process; 0: another process wrote it.
    """

    order: int
    partition: int
    number: int
    records: int
    payload: Buffer
    size: int
    checksum: int | None = None
    place: PayloadRange | None = None
    written_at: float = 0.0

    @property
    def crc32c(self) -> int:
        """The checksum; made now if the block was in this process's memory all the time."""
        return crc32c(self.payload) if self.checksum is None else self.checksum

    @property
    def stored(self) -> bool:
        """The payload lies in a file."""
        return self.place is not None

    def loaded(self) -> SequencedBlock:
        """The block with its payload in memory.

        :raises StorageFailed, BlockCorrupt: it cannot be read, or is not what was written.
        """
        if self.place is None:
            return self
        name = f"block {self.number} of partition {self.partition}"
        return self._replace(payload=self.place.read(self.size, self.crc32c, name), place=None)

    def in_flight(self, map: int) -> InFlight:
        """Raises as `loaded`."""
        return InFlight(map, self.partition, self.number, self.records, bytes(self.loaded().payload))


class SequencedMarker(NamedTuple):
    """A marker; it stands in every partition's queue.

    :ivar number: counts this writer's markers.
    """

    order: int
    number: int
    marker: Marker

    def overtaking(self) -> SequencedMarker:
        """A barrier, as one that overtakes."""
        assert isinstance(self.marker, Barrier)
        return self._replace(marker=replace(self.marker, unaligned=True))


Entry: TypeAlias = SequencedBlock | SequencedMarker
