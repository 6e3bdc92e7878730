"""What stands in a writer's queue: blocks and markers, in the order written."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from shuffle_api.buffer import Buffer
from shuffle_api.errors import BlockCorrupt, StorageFailed
from shuffle_api.periodic import aside
from shuffle_api.streaming import Barrier, InFlight, Marker
from shuffle_transport.checksum import crc32c
from shuffle_transport.files import read_fully

RESTORE = "restore producers and consumers from a checkpoint that does not need it, and check this disk"


Later: TypeAlias = Callable[[Callable[[], object]], object]
"""Has something done, now or soon."""


def at_once(task: Callable[[], object]) -> None:
    """The `Later` of those that may wait for the disk."""
    task()


class PayloadFile:
    """An open file, closed when nothing refers to it: blocks that wait can be read after its name is gone.

    :param later: has it closed, which may wait for the disk, and so may the last one that refers to it not.
    """

    def __init__(self, path: Path, fd: int, later: Later = at_once) -> None:
        self.path, self.fd = path, fd
        weakref.finalize(self, later, partial(os.close, fd)).atexit = False  # the end of the process closes it too


class PayloadRange(NamedTuple):
    """Where the payload of a block lies, which is read when it is wanted, and compared with its checksum.

    It is read, never mapped: of a file that is cut, or a disk that fails, a read is an error, where a mapping ends the
    process with a signal.
    """

    file: PayloadFile
    offset: int

    def read(self, size: int, checksum: int, block: str) -> memoryview:
        """The payload, as its writer made it.

        :param checksum: made when the block was written.
        :param block: its name, for errors.
        :raises StorageFailed: the file cannot be read, or is shorter.
        :raises BlockCorrupt: the bytes are others.
        """
        where = f"{block} cannot be replayed: {self.file.path}"
        target = memoryview(bytearray(size))
        try:
            done = read_fully(self.file.fd, self.offset, target)
        except OSError as error:
            raise StorageFailed(
                f"{where} cannot be read at offset {self.offset}: {error.strerror}", remedy=RESTORE
            ) from error
        if done < size:
            raise StorageFailed(
                f"{where} has {done} bytes of {size} at offset {self.offset}: it was cut", remedy=RESTORE
            )
        found = crc32c(target)
        if found != checksum:
            raise BlockCorrupt(
                f"{where} has {size} bytes of checksum {found:#010x} at offset {self.offset}, its writer made"
                f" {checksum:#010x}",
                remedy=RESTORE,
            )
        return target.toreadonly()


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


def load_aside(blocks: list[SequencedBlock], later: Later | None = None) -> Future[list[SequencedBlock]]:
    """The blocks with their payloads in memory, read on another thread: the caller need not wait for a disk.

    :param later: see `aside`.
    """
    return aside("pipelined-replay", lambda: [block.loaded() for block in blocks], later)


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
