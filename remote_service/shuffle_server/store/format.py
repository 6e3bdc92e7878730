"""The file of one map output: payload bytes as they arrived, then an index, a description and a trailer.

    [payloads][index: one INDEX_ROW per block, sorted by partition][description: JSON][trailer: 32 bytes]

The file is written front to back and becomes visible only when it is complete, so the end is where a reader
starts: a file without a valid trailer is a torn one. The checksum of the trailer covers index and description;
payloads carry a checksum per block, which their reader checks.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Self

import numpy as np

from shuffle_api.errors import ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.slots_json import COMPACT_JSON
from shuffle_api.values import Totals
from shuffle_transport.checksum import BLOCK_ROW, FEW_ROWS, PACKED_BLOCK_ROW, crc32c

TABLE_FIELDS = BLOCK_ROW.names or ()
INDEX_ROW = np.dtype([*((name, BLOCK_ROW[name]) for name in TABLE_FIELDS), ("offset", "<i8")])
PACKED_ROW = struct.Struct("<iIqqqq")  # an INDEX_ROW
MAGIC = b"FLSHOUT1"
TRAILER = struct.Struct("<QQII8s")  # index offset, blocks, description bytes, crc32c of what precedes it, magic


class TornFile(Exception):
    """This file is no complete map output; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Description:
    """What a map output file says of itself."""

    app: str
    shuffle: int
    generation: int
    map: int
    attempt: int
    partitions: int
    codec: str
    totals: Totals

    @property
    def shuffle_id(self) -> ShuffleId:
        return ShuffleId(self.app, self.shuffle, self.generation)

    def check(self, shuffle: ShuffleId, output: MapAttempt) -> None:
        """Raises TornFile when the file is not this attempt's."""
        if (self.shuffle_id, self.output) != (shuffle, output):
            raise TornFile(f"it holds {self.output} of generation {self.generation} of {self.shuffle_id}")

    @property
    def output(self) -> MapAttempt:
        return MapAttempt(self.map, self.attempt)

    def encode(self) -> bytes:
        """As JSON."""
        return COMPACT_JSON.encode(self).encode()

    @classmethod
    def decode(cls, text: bytes | bytearray) -> Self:
        """What `encode` made. Raises TornFile: it is something else."""
        try:
            fields: dict[str, Any] = json.loads(text)
            totals = Totals(**fields.pop("totals"))
            found = cls(totals=totals, **fields)
            _ = found.shuffle_id, found.output  # raises where there can be none
            return found
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ShuffleError) as error:
            raise TornFile(f"its description is none: {error!r:.200}") from None


def build_index(tables: list[np.ndarray]) -> bytes:
    """The index (dtype INDEX_ROW) of blocks that were appended in the order of `tables` (dtype BLOCK_ROW each).

    Sorted by partition; blocks of one partition stay in the order in which they were written.
    """
    if sum(map(len, tables)) <= FEW_ROWS:
        return _index_of_few(b"".join(table.tobytes() for table in tables))
    rows = np.concatenate(tables)
    index = np.empty(len(rows), INDEX_ROW)
    for name in TABLE_FIELDS:
        index[name] = rows[name]
    index["offset"] = np.cumsum(rows["length"]) - rows["length"]
    if len(index) and (np.diff(index["partition"]) < 0).any():
        index = index[np.argsort(index["partition"], kind="stable")]
    return index.tobytes()


def _index_of_few(table: bytes) -> bytes:
    """The same, row by row: for few of them numpy's calls take several times as long."""
    offset, index = 0, []
    for row in PACKED_BLOCK_ROW.iter_unpack(table):
        index.append((*row, offset))
        offset += row[2]
    index.sort(key=itemgetter(0))
    return b"".join(PACKED_ROW.pack(*row) for row in index)


def encode_tail(index: bytes, description: Description) -> bytes:
    """Everything that follows the payloads."""
    text = description.encode()
    body = index + text
    head = TRAILER.pack(description.totals.bytes, len(index) // PACKED_ROW.size, len(text), 0, b"\0" * 8)[:20]
    return body + head + struct.pack("<I8s", crc32c(head, crc32c(body)), MAGIC)


def decode_trailer(trailer: bytes, file_size: int) -> tuple[int, int, int, int]:
    """Index offset, blocks, description bytes and checksum. Raises TornFile."""
    if len(trailer) < TRAILER.size:
        raise TornFile(f"{file_size} bytes are too short for a map output")
    offset, blocks, text_bytes, checksum, magic = TRAILER.unpack(trailer)
    if magic != MAGIC:
        raise TornFile("it does not end with a map output's trailer")
    if offset + blocks * INDEX_ROW.itemsize + text_bytes + TRAILER.size != file_size:
        raise TornFile(f"its trailer describes a file of another size than {file_size} bytes")
    return offset, blocks, text_bytes, checksum


def decode_tail(body: bytes | bytearray, trailer: bytes, blocks: int) -> tuple[np.ndarray, Description]:
    """Index and description from the bytes between the payloads and the trailer. Raises TornFile."""
    *_, checksum, _magic = TRAILER.unpack(trailer)
    if crc32c(trailer[:20], crc32c(body)) != checksum:
        raise TornFile("the checksum of its index does not match")
    index_bytes = blocks * INDEX_ROW.itemsize
    return np.frombuffer(body, INDEX_ROW, blocks), Description.decode(body[index_bytes:])
