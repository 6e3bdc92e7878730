"""What stands in a writer's queue: blocks and markers, in the order written."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from shuffle_api.buffer import Buffer
from shuffle_api.streaming import InFlight, Marker


class Block(NamedTuple):
    """Records of one partition.

    :ivar number: counts the blocks of this writer and partition.
    :ivar order: the place among everything this writer wrote.
    :ivar payload: unchanging.
    :ivar stored: the payload is a view of a file, and takes no memory.
    """

    order: int
    partition: int
    number: int
    records: int
    payload: Buffer
    size: int
    stored: bool = False

    def in_flight(self, map: int) -> InFlight:
        return InFlight(map, self.partition, self.number, self.records, bytes(self.payload))


class Mark(NamedTuple):
    """A marker; it stands in every partition's queue.

    :ivar number: counts this writer's markers.
    """

    order: int
    number: int
    marker: Marker


Entry: TypeAlias = Block | Mark
