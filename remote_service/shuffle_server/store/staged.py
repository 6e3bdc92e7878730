"""A map output while it is being written: an append-only partial file and the table of what it holds."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from shuffle_api.errors import AttemptSuperseded, StorageFailed, StorageFull
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import Totals
from shuffle_server.store.format import Description, build_index, encode_tail
from shuffle_transport.blocks import BlockBatch, add_rows

_FULL = frozenset({28, 122})  # ENOSPC, EDQUOT


class StagedOutput:
    """One attempt's blocks, appended by one stream at a time.

    A stream that takes over (the sender reconnected) gets a new turn; the old stream's late blocks are refused by
    its turn, so no block is held twice. The caller serializes nothing: `lock` does.
    """

    def __init__(
        self,
        path: Path,
        shuffle: ShuffleId,
        output: MapAttempt,
        partitions: int,
        codec: str,
        *,
        open_file: Callable[[int], int],
        make_room: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        :param open_file: opens the file at `path` for writing, given how many bytes come first.
        :param make_room: what to try when the disk is full; False when that was in vain.
        """
        self.shuffle, self.output, self.codec = shuffle, output, codec
        self._path, self._partitions = path, partitions
        self._lock = threading.Lock()
        self._open_file, self._make_room = open_file, make_room
        self._fd = -1
        self._tables: list[np.ndarray] = []
        self._turn = 0
        self._open = True
        self.totals = Totals()
        self.touched = time.monotonic()

    def take_turn(self) -> int:
        """The number under which this stream may append from now on; earlier numbers are void."""
        with self._lock:
            self._turn += 1
            return self._turn

    def append(self, turn: int, batch: BlockBatch) -> Totals:
        """Append a batch and return what is held now.

        Raises StorageFull or StorageFailed (then the file is as it was before), AttemptSuperseded when another
        stream took over.
        """
        with self._lock:
            self._check(turn)
            self._write(batch.payload, self.totals.bytes)
            self._tables.append(batch.rows)
            self.totals = add_rows(self.totals, batch.rows)
            self.touched = time.monotonic()
            return self.totals

    def seal(self, turn: int, sync: bool) -> Description:
        """Write index and trailer: the file is complete, still under its partial name. `sync` forces it to the disk."""
        with self._lock:
            self._check(turn)
            description = Description(
                self.shuffle.app,
                self.shuffle.shuffle,
                self.output.map,
                self.output.attempt,
                self._partitions,
                self.codec,
                self.totals,
            )
            tail = encode_tail(build_index(self._tables), description)
            self._write(memoryview(tail), self.totals.bytes)
            try:
                # What is left of the file's former contents goes: the trailer is where the file ends.
                os.ftruncate(self._fd, self.totals.bytes + len(tail))
                if sync:
                    os.fdatasync(self._fd)
            except OSError as error:
                raise self._storage_error(error) from error
            return description

    def _write(self, data: memoryview, start: int) -> None:
        if self._fd < 0:
            self._fd = self._open_file(len(data))
        for again in (True, False):
            try:
                _write_all(self._fd, data, start)
                return
            except OSError as error:
                os.ftruncate(self._fd, start)
                if not again or error.errno not in _FULL or not self._make_room():
                    raise self._storage_error(error) from error

    def close(self) -> None:
        """Close the file, leaving it where it is; idempotent."""
        with self._lock:
            if self._open:
                self._open = False
                if self._fd >= 0:
                    os.close(self._fd)

    def discard(self) -> None:
        """Close and delete; idempotent, and fine when the directory is gone already."""
        self.close()
        self._path.unlink(missing_ok=True)

    def _check(self, turn: int) -> None:
        if not self._open or turn != self._turn:
            raise AttemptSuperseded(
                f"a newer stream writes {self.output}, or the attempt has ended",
                remedy="stop writing on this stream",
                shuffle=self.shuffle,
                output=self.output,
            )

    def _storage_error(self, error: OSError) -> StorageFull | StorageFailed:
        kind = StorageFull if error.errno in _FULL else StorageFailed
        return kind(
            f"{self._path.parent}: {error.strerror}",
            remedy="free space or add a data directory; committed data is unharmed"
            if kind is StorageFull
            else "check the disk",
            shuffle=self.shuffle,
            output=self.output,
        )


def _write_all(fd: int, data: memoryview, offset: int) -> None:
    while data:
        count = os.pwrite(fd, data, offset)
        data, offset = data[count:], offset + count
