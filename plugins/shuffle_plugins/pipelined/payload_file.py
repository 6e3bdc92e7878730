"""Payloads that lie in a file of an in-flight log, read when they are wanted and compared with their checksums.

They are read, never mapped: of a file that is cut, or a disk that fails, a read is an error, where a mapping ends the
process with a signal.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import NamedTuple

from shuffle_api.errors import BlockCorrupt, StorageFailed
from shuffle_transport.checksum import crc32c
from shuffle_transport.files import read_fully

_REMEDY = "restore producers and consumers from a checkpoint that does not need it, and check this disk"


class PayloadFile:
    """An open file, closed when nothing refers to it: blocks that wait can be read after its name is gone."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path, self.fd = path, fd
        weakref.finalize(self, os.close, fd)


class PayloadRange(NamedTuple):
    """Where the payload of a block lies."""

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
                f"{where} cannot be read at offset {self.offset}: {error.strerror}", remedy=_REMEDY
            ) from error
        if done < size:
            raise StorageFailed(
                f"{where} has {done} bytes of {size} at offset {self.offset}: it was cut", remedy=_REMEDY
            )
        found = crc32c(target)
        if found != checksum:
            raise BlockCorrupt(
                f"{where} has {size} bytes of checksum {found:#010x} at offset {self.offset}, its writer made"
                f" {checksum:#010x}",
                remedy=_REMEDY,
            )
        return target.toreadonly()
