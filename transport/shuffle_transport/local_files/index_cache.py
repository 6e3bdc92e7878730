"""Map outputs in files of this host that workers have reported, so that not every reader has to ask for them.

Nothing here is a promise. Outputs are removed, lost and moved, and their paths name other files then. So an entry has
the identity of its file, and a reader that finds another file there drops the entry and asks.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from shuffle_api.errors import ProtocolMismatch
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_transport.checksum import BLOCK_ROW
from shuffle_transport.files import FileIdentity
from shuffle_transport.proto import flight_shuffle_pb2 as pb

LOCATED_ROW = np.dtype([*((name, BLOCK_ROW[name]) for name in BLOCK_ROW.names or ()), ("offset", "<i8")])
MOST_BYTES: Final = 32 << 20
_ENTRY_BYTES: Final = 512  # beside the index, about

Row: TypeAlias = tuple[int, int, int, int, int, int]
"""Partition, crc32c, length, raw_length, records, offset."""


@dataclass(frozen=True, slots=True)
class OutputIndex:
    """Where the blocks of one output lie: those of all partitions if it is `whole`, else those that were asked for.

    `file` is which file it is about, None as long as nobody has read blocks of it.
    """

    path: str
    rows: npt.NDArray[Any]  # of LOCATED_ROW
    whole: bool = False
    file: FileIdentity | None = None

    @classmethod
    def of(cls, located: pb.LocatedBlocks) -> OutputIndex:
        """What a worker has told. Raises ProtocolMismatch when it is no index."""
        if len(located.index) % LOCATED_ROW.itemsize:
            raise ProtocolMismatch(f"an index of {len(located.index)} bytes")
        rows = np.frombuffer(located.index, LOCATED_ROW)
        if located.whole and (rows["partition"][1:] < rows["partition"][:-1]).any():
            raise ProtocolMismatch("an index that is not in the order of partitions")
        return cls(located.path, rows, located.whole)

    def between(self, partitions: range) -> list[Row]:
        """The rows of these partitions. Raises ProtocolMismatch when they cannot be an answer to what was asked."""
        rows = self.rows
        if self.whole:
            first, end = np.searchsorted(rows["partition"], [partitions.start, partitions.stop])
            rows = rows[first:end]
        asked: list[Row] = rows.tolist()
        last = partitions.start
        for partition, _, length, raw_length, records, offset in asked:
            if not last <= partition < partitions.stop or not 0 <= length <= raw_length or records < 0 or offset < 0:
                raise ProtocolMismatch("blocks that were not asked for")
            last = partition
        return asked


class OutputIndexCache:
    """Whole indexes by worker and output. Thread-safe; of what does not fit that which was wanted last stays.

    :param most: bytes that all of it may take.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most, self._bytes = most, 0
        self._lock = threading.Lock()
        self._indexes: OrderedDict[tuple[str, ShuffleId, MapAttempt], OutputIndex] = OrderedDict()

    def find(self, worker: str, shuffle: ShuffleId, output: MapAttempt) -> OutputIndex | None:
        """What is known of it."""
        with self._lock:
            found = self._indexes.get((worker, shuffle, output))
            if found is not None:
                self._indexes.move_to_end((worker, shuffle, output))
            return found

    def add(self, worker: str, shuffle: ShuffleId, output: MapAttempt, index: OutputIndex) -> None:
        """Keep a whole index, which names its file."""
        with self._lock:
            self._drop((worker, shuffle, output))
            self._indexes[worker, shuffle, output] = index
            self._bytes += _bytes(index)
            while self._bytes > self._most:
                self._drop(next(iter(self._indexes)))

    def forget(self, worker: str, shuffle: ShuffleId, output: MapAttempt) -> None:
        """It turned out not to be so."""
        with self._lock:
            self._drop((worker, shuffle, output))

    def __len__(self) -> int:
        return len(self._indexes)

    def _drop(self, key: tuple[str, ShuffleId, MapAttempt]) -> None:
        index = self._indexes.pop(key, None)
        if index is not None:
            self._bytes -= _bytes(index)


class LocatedOutputs:
    """Where outputs of one shuffle lie in files of one worker: `indexes`. Whole ones are kept in `known`."""

    def __init__(
        self, known: OutputIndexCache, worker: str, shuffle: ShuffleId, indexes: dict[MapAttempt, OutputIndex]
    ) -> None:
        self._known, self._worker, self._shuffle, self._indexes = known, worker, shuffle, indexes

    def get(self, output: MapAttempt) -> OutputIndex | None:
        """None: it is to be pulled."""
        return self._indexes.get(output)

    def right(self, output: MapAttempt, file: FileIdentity) -> None:
        """Blocks of it were read from this file, and matched their checksums: so the index is that of this file."""
        index = self._indexes[output]
        if index.whole and index.file is None:
            self._known.add(self._worker, self._shuffle, output, replace(index, file=file))

    def wrong(self, output: MapAttempt) -> None:
        """Its file is not what it should be."""
        self._known.forget(self._worker, self._shuffle, output)


def _bytes(index: OutputIndex) -> int:
    return _ENTRY_BYTES + index.rows.nbytes
