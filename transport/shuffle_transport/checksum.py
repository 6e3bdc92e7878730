"""CRC32C of payloads, and the digest of a sequence of blocks (docs/protocol.md, "Blocks").

CRC32C (Castagnoli, RFC 3720 appendix B.4) because every current CPU has an instruction for it, Spark can
compute it while it writes, and the JVM has it as an intrinsic: one checksum from the writer to the reader.
The digest covers the block *table*, not the payloads: each row already holds its payload's checksum, so
two sides that agree on the digest agree on every byte, and 32 bytes per block are hashed instead of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any

import crc32c as _crc32c
import numpy as np

from shuffle_api.buffer import Buffer
from shuffle_api.errors import InvalidArgument

BLOCK_ROW: np.dtype[np.void] = np.dtype(
    [("partition", "<i4"), ("crc32c", "<u4"), ("length", "<i8"), ("raw_length", "<i8"), ("records", "<i8")]
)
"""One row of a block table, 32 bytes without padding."""

PACKED_BLOCK_ROW = Struct("<iIqqq")
"""The same as a struct: for at most FEW_ROWS cheaper than an array."""
FEW_ROWS = 64


def crc32c(data: Buffer, value: int = 0) -> int:
    """CRC32C of `data`, continuing from `value` (the checksum of what came before; 0 at the start).

    Long inputs are hashed without the interpreter lock, so checksums run beside other threads.

    :param data: any C-contiguous buffer.
    :raises ValueError, BufferError: the buffer is not contiguous.
    """
    return _crc32c.crc32c(data, value)


def crc32c_of(pieces: Iterable[Buffer]) -> int:
    """CRC32C of pieces, one after the other. Raises what `crc32c` raises."""
    value = 0
    for piece in pieces:
        value = _crc32c.crc32c(piece, value)
    return value


def digest(rows: np.ndarray[Any, np.dtype[np.void]], value: int = 0) -> int:
    """CRC32C of block table rows, in their order, continuing from the digest `value` of the rows before.

    :param rows: one-dimensional array of dtype :data:`BLOCK_ROW`; a slice with a step is allowed.
    :raises InvalidArgument: another shape or dtype.
    """
    return _crc32c.crc32c(encoded_rows(rows), value)


def encoded_rows(rows: np.ndarray[Any, np.dtype[np.void]]) -> bytes | memoryview:
    """Block table rows as bytes, a view if they are many. Parameters and errors of `digest`."""
    if (rows.dtype is not BLOCK_ROW and rows.dtype != BLOCK_ROW) or rows.ndim != 1:
        raise InvalidArgument(
            f"a block table is one-dimensional with dtype {BLOCK_ROW}, not shape {rows.shape} with dtype {rows.dtype}",
            remedy="build the table with checksum.BLOCK_ROW",
        )
    return rows.tobytes() if len(rows) <= FEW_ROWS else np.ascontiguousarray(rows).data.cast("B")
