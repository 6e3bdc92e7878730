"""Records of one size as numpy rows: a whole block of them is framed, or looked at, without a step per record.

The block is one of content "records" like any other (see `shuffle_api.records`): a reader that goes record by
record gets the bytes of each row.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from shuffle_api.buffer import Buffer
from shuffle_api.errors import BlockCorrupt, InvalidArgument
from shuffle_api.records import MAX_RECORD


@lru_cache(maxsize=256)
def framed(dtype: np.dtype) -> np.dtype:
    """A row of `dtype` with its length before it, as it lies in a block: fields `length` (uint32) and `row`.

    :raises InvalidArgument: rows without bytes, or that hold Python objects.
    """
    if not 0 < dtype.itemsize <= MAX_RECORD or dtype.hasobject:
        raise InvalidArgument(
            f"rows of dtype {dtype} have no bytes of their own", remedy="use a dtype of fixed size without objects"
        )
    return np.dtype([("length", "<u4"), ("row", dtype)])


def frame_rows(rows: np.ndarray) -> bytes:
    """The payload of a block whose records are the bytes of `rows`, shape [n].

    :raises InvalidArgument: not one dimension, or a dtype that `framed` refuses.
    """
    if rows.ndim != 1:
        raise InvalidArgument(f"rows of shape {rows.shape}", remedy="pass an array of one dimension")
    block = np.empty(len(rows), framed(rows.dtype))
    block["length"] = rows.dtype.itemsize
    block["row"] = rows
    return block.tobytes()


def rows_of(payload: Buffer, dtype: np.dtype) -> np.ndarray:
    """The records of a block as rows of `dtype`, shape [n]: a read-only view, nothing is copied.

    :raises BlockCorrupt: a record of the block is not exactly as long as a row.
    """
    layout = framed(dtype)
    view = memoryview(payload)
    if view.nbytes % layout.itemsize:
        raise BlockCorrupt(f"a block of {view.nbytes} bytes does not hold records of {dtype.itemsize} bytes")
    block = np.frombuffer(view, layout)
    if len(wrong := np.flatnonzero(block["length"] != dtype.itemsize)):
        at = int(wrong[0])
        raise BlockCorrupt(f"record {at} is {int(block['length'][at])} bytes long, a row is {dtype.itemsize}")
    rows: np.ndarray = block["row"]
    rows.flags.writeable = False
    return rows
