"""Bytes that do not fit into memory go to a file without a name.

The file is unlinked as soon as it is open (O_TMPFILE where the file system has it): its space is free again when this
process closes it or ends, in whatever way, `kill -9` included. Nothing is ever left to clean up.

Bytes read back are compared with the checksum of those written: a disk may return other bytes than it was given.
"""

from __future__ import annotations

import errno
import os
import tempfile
from dataclasses import dataclass
from typing import IO

from crc32c import crc32c

from shuffle_api.buffer import Buffer
from shuffle_api.errors import BlockCorrupt, StorageFailed, StorageFull

_REMEDY = "check this disk, and run the task again"


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes that were put aside: `payload` in memory, or None, and then `length` bytes at `offset` of the file.

    `checksum` is the crc32c of bytes in the file.
    """

    payload: Buffer | None
    offset: int
    length: int
    checksum: int = 0


class Spill:
    """Takes bytes and gives them back. A context manager.

    :param memory: bytes it may hold in memory; all else goes to the file.
    :param directory: where the file lies; None is the system's directory for temporary files.
    """

    def __init__(self, *, memory: int, directory: str | None = None) -> None:
        self._free = memory
        self._directory = directory or tempfile.gettempdir()
        self._file: IO[bytes] | None = None
        self.spilled_bytes = 0

    def put(self, payload: Buffer) -> Blob:
        """Put bytes aside, which nobody changes any more.

        :raises StorageFull: no room in the directory.
        :raises StorageFailed: it cannot be written to.
        """
        length = memoryview(payload).nbytes
        if length <= self._free:
            self._free -= length
            return Blob(payload, 0, length)
        offset = self.spilled_bytes
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._directory, buffering=0)  # noqa: SIM115
            _write(self._file.fileno(), memoryview(payload).cast("B"), offset)
        except OSError as error:
            raise self._translated(error, length) from error
        self.spilled_bytes += length
        return Blob(None, offset, length, crc32c(payload))

    def get(self, blob: Blob) -> Buffer:
        """The bytes of a blob; those in memory are counted as free from now on, so ask once.

        :raises StorageFailed: they cannot be read.
        :raises BlockCorrupt: they are not the bytes that were put.
        """
        if blob.payload is not None:
            self._free += blob.length
            return blob.payload
        assert self._file is not None, "a blob of another spill, or read after close"
        try:
            data = os.pread(self._file.fileno(), blob.length, blob.offset)
        except OSError as error:
            raise self._translated(error, blob.length) from error
        if len(data) != blob.length:
            raise StorageFailed(
                f"{len(data)} of {blob.length} spilled bytes came back from {self._directory}",
                remedy=_REMEDY,
            )
        if crc32c(data) != blob.checksum:
            raise BlockCorrupt(
                f"{blob.length} bytes at offset {blob.offset} of the spill in {self._directory} do not match their"
                f" checksum {blob.checksum:#010x}",
                remedy=_REMEDY,
            )
        return data

    def close(self) -> None:
        """Drop everything; idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _translated(self, error: OSError, length: int) -> StorageFull | StorageFailed:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StorageFull(
                f"no room in {self._directory} to spill {length} bytes, {self.spilled_bytes} lie there already",
                remedy="free space there, name another directory (spill_dir), or give more memory",
            )
        return StorageFailed(
            f"spilling to {self._directory}: {error.strerror}", remedy="name another directory (spill_dir)"
        )


def _write(descriptor: int, data: memoryview, offset: int) -> None:
    """All of it: a disk that fills up takes a part first and refuses the rest."""
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written
