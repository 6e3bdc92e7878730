"""The registry's journal: every operation, in order, on disk before it is acknowledged.

A record is `uint32 length, uint32 crc32c, JSON`. Recovery replays the file up to the first record that is short or
does not match its checksum and cuts the file there: that record was never acknowledged. At each start the state is
written afresh as the shortest list of operations that builds it (`Registry.operations`), under a new name and then
renamed, so the journal does not grow with the server's age.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import struct
import threading
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from shuffle_api.errors import StorageFailed
from shuffle_api.registry import operations
from shuffle_api.registry.operations import Operation
from shuffle_transport.checksum import crc32c

log = logging.getLogger(__name__)
HEAD = struct.Struct("<II")


def encode(operation: Operation) -> bytes:
    """One record."""
    fields = {"op": type(operation).__name__, **dataclasses.asdict(operation)}
    text = json.dumps(fields, separators=(",", ":")).encode()
    return HEAD.pack(len(text), crc32c(text)) + text


def decode(text: bytes) -> Operation:
    """The operation of a record's JSON."""
    fields = json.loads(text)
    return typing.cast(Operation, _build(getattr(operations, fields.pop("op")), fields))


def _build(kind: Any, value: Any) -> Any:
    if not dataclasses.is_dataclass(kind):
        return value
    hints = typing.get_type_hints(kind)
    return typing.cast(Any, kind)(**{name: _build(hints[name], field) for name, field in value.items()})


def replay(path: Path) -> Iterator[Operation]:
    """The operations of a journal; a torn tail is cut off the file."""
    data = path.read_bytes() if path.exists() else b""
    at = 0
    while at < len(data):
        length, checksum = HEAD.unpack_from(data, at) if at + HEAD.size <= len(data) else (len(data), 0)
        text = data[at + HEAD.size : at + HEAD.size + length]
        if len(text) < length or crc32c(text) != checksum:
            log.warning("%s: cut %d bytes of an unfinished record at %d", path, len(data) - at, at)
            os.truncate(path, at)
            return
        yield decode(text)
        at += HEAD.size + length


class Journal:
    """Appends operations, many waiters to one write (group commit).

    `append` fixes the order and costs no I/O; `flush` makes everything up to a number durable. Whoever comes first
    writes for all who wait.
    """

    def __init__(self, path: Path, state: Iterable[Operation], *, sync: bool = False) -> None:
        self._path, self._sync = path, sync
        self._lock, self._io = threading.Lock(), threading.Lock()
        self._pending: list[bytes] = []
        self._appended = self._written = 0
        fresh = path.with_suffix(".new")
        try:
            with open(fresh, "wb") as file:
                file.writelines(encode(operation) for operation in state)
                file.flush()
                os.fsync(file.fileno())
                self._size = file.tell()
            fresh.replace(path)
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise self._failed(error) from error

    def append(self, operation: Operation) -> int:
        """Queue one operation; its number, to be given to `flush`."""
        record = encode(operation)
        with self._lock:
            self._pending.append(record)
            self._appended += 1
            return self._appended

    @property
    def appended(self) -> int:
        """Number of the last operation that was queued."""
        with self._lock:
            return self._appended

    def flush(self, number: int) -> None:
        """Return when every operation up to `number` is on disk. Raises StorageFailed."""
        with self._io:
            if self._written >= number:
                return
            with self._lock:
                records, upto = list(self._pending), self._appended
            try:
                written = self._write(b"".join(records))
            except OSError as error:
                # Nothing half-written stays; the records stay queued and are written when the disk has room again.
                os.ftruncate(self._fd, self._size)
                raise self._failed(error) from error
            with self._lock:
                del self._pending[: len(records)]
            self._size += written
            self._written = upto

    def _write(self, data: bytes) -> int:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]
        if self._sync:
            os.fdatasync(self._fd)
        return len(data)

    def _failed(self, error: OSError) -> StorageFailed:
        return StorageFailed(f"journal {self._path}: {error.strerror}", remedy="free space on the master's disk")

    def close(self) -> None:
        """Write what is queued and close; call once."""
        self.flush(self._appended)
        os.close(self._fd)
