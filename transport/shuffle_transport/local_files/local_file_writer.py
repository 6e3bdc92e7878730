"""A map output that is written to a file which the worker created, and which it takes back with the commit.

The file is locked while it is written: the worker refuses one that somebody still writes. It stays open until the
commit has been answered, so that all of it can be pushed instead, whatever has become of the worker and of the file.
"""

from __future__ import annotations

import errno
import fcntl
import io
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from shuffle_api.errors import (
    InvalidArgument,
    ProtocolMismatch,
    QuotaExceeded,
    ShuffleError,
    StorageFailed,
    StorageFull,
)
from shuffle_transport import messages
from shuffle_transport.blocks import Block, table_rows, totals_of
from shuffle_transport.checksum import BLOCK_ROW
from shuffle_transport.files import read_fully
from shuffle_transport.flight_client import FlightClient, PushTarget, check_committed, put_command
from shuffle_transport.local_files.access import LocalFileAccess
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)

LEAST_BYTES = 32 << 20  # room without which no file is worth it
FIRST_BYTES = 64 << 20  # room that is asked for with the file, and then as much again as is written
MOST_BYTES = 256 << 20  # but no more than this at once: others may have used it before it is written
MOST_BUFFERS = 512  # of one write; the kernel takes 1024

_FULL = (errno.ENOSPC, errno.EDQUOT)


class LocalFileWriter:
    """The blocks of one attempt, back to back in a file of the worker's. For one thread; `close` it at the end.

    Nothing of it is visible before `commit`. A file that its writer leaves behind is dropped by the worker in time.
    """

    def __init__(
        self,
        local_files: LocalFileAccess,
        worker: str,
        client: FlightClient,
        command: pb.PutCommand,
        file: io.FileIO,
        room: int,
    ) -> None:
        """Use `create`."""
        self._local_files, self._worker, self._client, self._command = local_files, worker, client, command
        self._file, self._path = file, Path(str(file.name))
        self._rows = bytearray()  # the block table
        self._room, self._end = room, 0

    @classmethod
    def create(
        cls, local_files: LocalFileAccess, worker: str, client: FlightClient, target: PushTarget
    ) -> LocalFileWriter | None:
        """A file for an attempt of which nothing was pushed; None when there is none, for whatever reason: push it."""
        nonce = local_files.nonce(worker, client)
        if nonce is None:
            return None
        command = put_command(target)
        try:
            request = pb.LendRequest(nonce=nonce, command=command, bytes=FIRST_BYTES)
            try:
                reply = _create(local_files, client, request)
            except (StorageFull, QuotaExceeded):
                request.bytes = LEAST_BYTES
                reply = _create(local_files, client, request)
            if reply.HasField("committed"):
                return None  # a push gets that answer
            return cls(local_files, worker, client, command, _open_locked(reply.path), request.bytes)
        except (ShuffleError, OSError, ValueError) as error:
            local_files.failed(worker, error if isinstance(error, ShuffleError | OSError) else OSError(str(error)))
            return None

    @property
    def written(self) -> int:
        """Payload bytes."""
        return self._end

    def append(self, blocks: Sequence[Block]) -> None:
        """Write blocks behind those before; their payloads are not looked at later.

        :raises StorageFull: there is no room above the worker's floor; names the directory.
        :raises QuotaExceeded: the application may hold no more at this worker.
        :raises ShuffleError: anything else; blocks appended before are there still (`read_back`).
        """
        rows = table_rows(blocks)
        payloads = [memoryview(piece).cast("B") for block in blocks for piece in block.pieces]
        end = self._end + sum(map(len, payloads))
        if end > self._room:
            self._make_room(end)
        try:
            try:
                self._write(payloads)
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                self._ask_for_room(end)  # the worker may have something to give up
                self._write(payloads)
        except OSError as error:
            raise self._failure(error) from error
        self._rows += rows.tobytes()
        self._end = end

    def commit(self) -> pb.Committed:
        """Finalize the file; the output that has won the map. May be repeated when it is not known how it ended.

        :raises ShuffleError: what the worker says; or nobody knows whether it has taken the file.
        """
        nonce = self._nonce()
        fcntl.lockf(self._file, fcntl.LOCK_UN)
        table = self._table()
        end = messages.totals_message(totals_of(table))
        request = pb.AdoptRequest(nonce=nonce, command=self._command, end=end, table=table.tobytes())
        results = self._local_files.act(self._client, "adopt", request, None)
        if len(results) != 1:
            raise ProtocolMismatch(f"{self._client.address} answered a hand-over with {len(results)} results")
        committed = messages.parse(pb.Committed, results[0])
        check_committed(committed, self._command, request.end)
        return committed

    def read_back(self, most: int) -> Iterator[list[Block]]:
        """All blocks written, in their order, in runs of about `most` bytes: to push them if the file is not finalized.

        :raises StorageFailed: the file cannot be read, or was cut by somebody.
        """
        rows: list[tuple[int, ...]] = self._table().tolist()
        run: list[Block] = []
        offset = start = 0
        for partition, checksum, length, raw_length, records in rows:
            if run and offset + length - start > most:
                yield run
                run, start = [], offset
            run.append(Block(partition, checksum, raw_length, records, self._read(offset, length)))
            offset += length
        if run:
            yield run

    def drop(self) -> None:
        """Have the worker forget the attempt and delete the file. What could not be said, it finds out in time."""
        try:
            self._local_files.act(self._client, "drop", pb.LendRequest(nonce=self._nonce(), command=self._command))
        except ShuffleError as error:
            log.info("%s is left to the worker, which drops it in time: %s", self._path, error)

    def close(self) -> None:
        """Close the file; idempotent."""
        self._file.close()

    def _table(self) -> np.ndarray:
        return np.frombuffer(bytes(self._rows), BLOCK_ROW)

    def _nonce(self) -> bytes:
        return self._local_files.nonce(self._worker, self._client) or b""

    def _make_room(self, needed: int) -> None:
        try:
            self._ask_for_room(needed + min(max(needed, FIRST_BYTES), MOST_BYTES))
        except (StorageFull, QuotaExceeded):
            self._ask_for_room(needed)

    def _ask_for_room(self, end: int) -> None:
        request = pb.LendRequest(nonce=self._nonce(), command=self._command, bytes=end, more=True)
        _create(self._local_files, self._client, request)  # "committed": another attempt, which the commit returns
        self._room = end

    def _write(self, payloads: list[memoryview]) -> None:
        """All of them, from where the file ends; again the same after a failure."""
        at = self._end
        for first in range(0, len(payloads), MOST_BUFFERS):
            left = payloads[first : first + MOST_BUFFERS]
            while left:
                count = os.pwritev(self._file.fileno(), left, at)
                at += count
                while left and count >= left[0].nbytes:
                    count -= left.pop(0).nbytes
                if left:
                    left[0] = left[0][count:]

    def _read(self, offset: int, length: int) -> memoryview:
        target = memoryview(bytearray(length))
        try:
            done = read_fully(self._file.fileno(), offset, target)
        except OSError as error:
            raise self._failure(error) from error
        if done < length:
            raise StorageFailed(f"{self._path}: it was cut at {offset + done} by somebody else")
        return target

    def _failure(self, error: OSError) -> StorageFull | StorageFailed:
        output = messages.map_attempt(self._command.output)
        if error.errno in _FULL:
            return StorageFull(
                f"{self._path.parent}: {error.strerror}",
                remedy="free space or add a data directory; committed data is unharmed",
                output=output,
            )
        return StorageFailed(f"{self._path}: {error.strerror}", remedy="check this disk", output=output)


def _create(local_files: LocalFileAccess, client: FlightClient, request: pb.LendRequest) -> pb.LendReply:
    results = local_files.act(client, "lend", request)
    if len(results) != 1:
        raise ProtocolMismatch(f"{client.address} lent a file with {len(results)} results")
    return messages.parse(pb.LendReply, results[0])


def _open_locked(path: str) -> io.FileIO:
    """The local file, for this process alone. Raises OSError, InvalidArgument (it is no absolute path)."""
    if not os.path.isabs(path):
        raise InvalidArgument(f"the worker lent {path!r}, which is no absolute path")

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC)

    file = io.FileIO(path, "r+", opener=opener)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file
