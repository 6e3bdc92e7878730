"""Snapshots: a state of the registry as the operations that lead to it, in one file.

Written under another name, synced, renamed, the directory synced: a file with a snapshot's name is whole. After the
last frame with operations comes an empty one that says how many there were.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from shuffle_api.errors import InvalidArgument, ShuttingDown, StorageFailed
from shuffle_server.master.files import AppendFile, FlatDirectory
from shuffle_transport.frames import FileHeader, FrameFile, encode_frame

T = TypeVar("T")
NEW = ".new"  # what a file is called until it is whole
FRAME_OPERATIONS = 500
# A thread that only computes keeps the interpreter for 5 ms whenever somebody else wants it. Half a millisecond of work
# and then a pause is hardly felt by those who commit.
PAUSE_SECONDS = 0.0005


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A snapshot of the state after operation `lsn`, written in `epoch`: so many operations lead to it."""

    lsn: int
    epoch: int
    operations: int


def snapshot_name(lsn: int) -> str:
    """The snapshot of the state after operation number `lsn`."""
    return f"snapshot-{lsn:016x}"


def write_snapshot(
    directory: FlatDirectory, name: str, header: FileHeader, records: Iterable[bytes], stop: threading.Event
) -> SnapshotInfo:
    """Write a snapshot; it is durable when this returns, and there is nothing of it when this raises.

    :param records: its operations, encoded.
    :raises StorageFailed: the disk is full or failing.
    :raises ShuttingDown: `stop` was set.
    """
    fresh = f"{name}.{threading.get_ident()}{NEW}"  # another thread may be making the same one
    try:
        file = directory.create(fresh)
        try:
            file.write(header.encode())
            count = _write_frames(file, iter(records), stop)
            file.sync()
        except BaseException:
            directory.remove(fresh)
            raise
        finally:
            file.close()
        directory.rename(fresh, name)
        directory.sync()
    except OSError as error:
        raise StorageFailed(
            f"the snapshot {directory.describe(name)}: {error.strerror}", remedy="free space on this disk"
        ) from error
    return SnapshotInfo(header.lsn, header.epoch, count)


def _write_frames(file: AppendFile, records: Iterator[bytes], stop: threading.Event) -> int:
    count = 0
    while frame := list(islice(records, FRAME_OPERATIONS)):
        file.write(encode_frame(count, b"".join(frame)))
        count += len(frame)
        if stop.wait(PAUSE_SECONDS):
            raise ShuttingDown("the registry is closed in the middle of a snapshot")
    file.write(encode_frame(count, b""))
    return count


def read_snapshot(file: FrameFile, decode: Callable[[bytes], Iterator[T]]) -> Iterator[T]:
    """The operations of a snapshot, in order.

    :param decode: `Decoder.decode` or `Decoder.replay`.
    :raises DamagedFile: the file differs from the one written. Operations yielded before it must not be used.
    """
    count, ended = 0, False
    for frame in file.frames():
        if frame.lsn != count or ended:
            raise file.damaged(frame.offset, f"a frame for operation {frame.lsn} where {count} was to come")
        ended = not frame.payload
        for operation in operations_of(file, frame.offset, decode(frame.payload)):
            count += 1
            yield operation
    if not ended or file.torn:
        raise file.damaged(file.end, "it ends before it is complete")


def operations_of(file: FrameFile, offset: int, decoded: Iterator[T]) -> Iterator[T]:
    """The operations of a frame. Raises DamagedFile when they are not such."""
    try:
        yield from decoded
    except InvalidArgument as error:
        raise file.damaged(offset, error.message) from error
