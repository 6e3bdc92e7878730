"""Records in a block of content "records": back to back, each `uint32 little-endian length + bytes`."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from shuffle_api.buffer import Buffer
from shuffle_api.errors import BlockCorrupt, InvalidArgument

LENGTH = struct.Struct("<I")
"""The length that stands before each record."""

MAX_RECORD = 2**32 - 1
"""Longest record, in bytes."""


def frame(record: Buffer) -> bytes:
    """One record with its length before it.

    :raises InvalidArgument: longer than `MAX_RECORD`.
    """
    view = memoryview(record)
    if view.nbytes > MAX_RECORD:
        raise InvalidArgument(f"a record of {view.nbytes} bytes is too long", remedy="split it: the limit is 4 GiB")
    return LENGTH.pack(view.nbytes) + view.tobytes()


def pack_records(records: Iterable[Buffer]) -> bytes:
    """The payload of a block that holds `records`. `unpack_records` is the inverse."""
    return b"".join(map(frame, records))


def unpack_records(payload: Buffer) -> Iterator[bytes]:
    """Yield the records of a block's payload.

    :raises BlockCorrupt: a length points outside the payload; records before it have been yielded.
    """
    data = memoryview(payload).cast("B")
    at, end = 0, data.nbytes
    while at < end:
        body = at + LENGTH.size
        stop = body + LENGTH.unpack_from(data, at)[0] if body <= end else body
        if stop > end:
            raise BlockCorrupt(f"the record at byte {at} of a block of {end} bytes reaches to byte {stop}")
        yield bytes(data[body:stop])
        at = stop
