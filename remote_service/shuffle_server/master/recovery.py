"""What a registry's directory holds, as a state: the newest snapshot that is whole, and the log after it.

The files are `snapshot-<lsn of the last operation in it>` and `log-<lsn of its first operation>`, lsns in hexadecimal.
A log goes on where the one before ends, and a snapshot is of the state at such an end. So the logs from a snapshot on,
in order, lead to the newest state, and a gap shows.
"""

from __future__ import annotations

import gc
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from shuffle_api.errors import InvalidArgument, ShuffleError, StorageFailed
from shuffle_api.registry.encoding import Decoder
from shuffle_api.registry.state import Registry
from shuffle_server.master.files import FlatDirectory
from shuffle_server.master.snapshots import NEW, operations_of, read_snapshot
from shuffle_transport.frames import LOG, SNAPSHOT, DamagedFile, FrameFile

log = logging.getLogger(__name__)

_NAME = re.compile(r"(log|snapshot)-([0-9a-f]{16})")
FORMER = ("registry.journal", "registry.new")  # what an earlier format called its files
DAMAGED = "damaged-"  # what the names of snapshots begin with that are not to be used


@dataclass(slots=True)
class Recovered:
    """The state after operation `lsn`; `epoch` is the highest in any file, 0 if there is none; `replayed` operations
    came from logs, after the `snapshot` (its lsn, 0 for none)."""

    registry: Registry = field(default_factory=Registry)
    lsn: int = 0
    epoch: int = 0
    replayed: int = 0
    snapshot: int = 0


def file_lsns(directory: FlatDirectory, kind: str) -> dict[int, str]:
    """The names of the files of a kind (`log`, `snapshot`) by their lsn, ascending."""
    found = ((_NAME.fullmatch(name), name) for name in directory.names())
    return dict(sorted((int(match[2], 16), name) for match, name in found if match and match[1] == kind))


def recover(directory: FlatDirectory) -> Recovered:
    """The newest state; a torn tail is cut off the last log, and unfinished files are removed.

    :raises DamagedFile: a file is not what was written, or missing, and nothing else can stand in for it.
    :raises InvalidArgument: a file is in a format that this release does not read.
    :raises StorageFailed: a file cannot be read.
    """
    try:
        with _without_gc():
            _tidy(directory)
            state = _newest_snapshot(directory)
            _replay_logs(directory, state)
            state.registry.index()  # before anybody waits for it
            return state
    except OSError as error:
        raise StorageFailed(
            f"{directory.describe(error.filename or '.')}: {error.strerror}", remedy="see to the master's disk"
        ) from error


def _tidy(directory: FlatDirectory) -> None:
    for name in directory.names():
        if name in FORMER:
            raise InvalidArgument(
                f"{directory.describe(name)} is in a format that this release does not read",
                remedy="start the release of flight-shuffle that wrote it, or give an empty data directory",
            )
        if name.endswith(NEW):
            directory.remove(name)  # it was never finished, so nobody was told of it


def _newest_snapshot(directory: FlatDirectory) -> Recovered:
    damaged: dict[str, DamagedFile] = {}
    state = Recovered()
    for lsn, name in reversed(file_lsns(directory, "snapshot").items()):
        state = Recovered(lsn=lsn, snapshot=lsn)
        try:
            with FrameFile(directory, name, SNAPSHOT) as file:
                state.epoch = file.header.epoch
                if file.header.lsn != lsn:
                    raise file.damaged(0, f"it is the snapshot of operation {file.header.lsn}")
                _apply_snapshot(file, state.registry)
            break
        except DamagedFile as error:
            damaged[name] = error
            state = Recovered()
    if damaged and not state.lsn and 1 not in file_lsns(directory, "log"):
        raise next(iter(damaged.values()))  # the log does not reach back to the beginning
    for name, why in damaged.items():
        log.error("%s. Operation %d and the log after it replace it", why.message, state.lsn)
        directory.rename(name, DAMAGED + name)  # so that it is not taken for a snapshot to fall back to
    return state


def _apply_snapshot(file: FrameFile, registry: Registry) -> None:
    for operation in read_snapshot(file, partial(Decoder().replay, commit=registry.recommit)):
        try:
            if operation is not None:
                registry.apply(operation)
        except ShuffleError as error:
            raise file.damaged(file.end, f"{operation} does not fit: {error.message}") from error


def _replay_logs(directory: FlatDirectory, state: Recovered) -> None:
    logs = {lsn: name for lsn, name in file_lsns(directory, "log").items() if lsn > state.lsn}
    last = max(logs, default=0)
    for lsn, name in logs.items():
        if lsn != state.lsn + 1:
            raise DamagedFile(
                f"operations {state.lsn + 1} to {lsn - 1} are missing before {directory.describe(name)}",
                remedy="put back the log or the snapshot that is missing, or move the directory away to begin with an"
                " empty registry",
            )
        with FrameFile(directory, name, LOG) as file:
            if file.header.lsn != lsn:
                raise file.damaged(0, f"it is the log from operation {file.header.lsn} on")
            state.epoch = max(state.epoch, file.header.epoch)
            _replay(file, state)
        if lsn == last:
            _finish(directory, name, file)
        elif file.torn:
            raise file.damaged(file.end, "it ends within a frame, and yet another log follows")


def _replay(file: FrameFile, state: Recovered) -> None:
    decoder, registry = Decoder(), state.registry
    for frame in file.frames():
        if frame.lsn != state.lsn + 1:
            raise file.damaged(frame.offset, f"operation {frame.lsn} where {state.lsn + 1} was to come")
        before = state.lsn
        for operation in operations_of(file, frame.offset, decoder.replay(frame.payload, registry.recommit)):
            try:
                if operation is not None:
                    registry.apply(operation)
            except ShuffleError as error:
                raise file.damaged(frame.offset, f"{operation} does not fit: {error.message}") from error
            state.lsn += 1
        state.replayed += state.lsn - before


def _finish(directory: FlatDirectory, name: str, file: FrameFile) -> None:
    """Cut the torn tail of the last log, and sync the rest to the disk before any caller sees it."""
    if file.torn:
        log.warning("%s: cut %d bytes of an unfinished frame at offset %d", file.name, file.torn, file.end)
    rest = directory.append(name)
    try:
        rest.truncate(file.end)
        rest.sync()
    finally:
        rest.close()


@contextmanager
def _without_gc() -> Iterator[None]:
    """No search for cycles: there are none, and with millions of new objects it takes longer than making them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
