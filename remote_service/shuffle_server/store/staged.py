"""A map output while it is being written: an append-only partial file and the table of what it holds."""

from __future__ import annotations

import os
import threading
import time

import numpy as np

from shuffle_api.errors import AttemptSuperseded, ShuffleError, StorageFull
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import Totals
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.format import Description, build_index, encode_tail
from shuffle_transport.blocks import BlockBatch, add_rows


class StagedOutput:
    """One attempt's blocks, appended by one stream at a time.

    A stream that takes over (the sender reconnected) gets a new turn; the old stream's late blocks are refused by
    its turn, so no block is held twice. The caller serializes nothing: `lock` does.
    """

    def __init__(
        self,
        home: DataDirectory,
        shuffle: ShuffleId,
        output: MapAttempt,
        partitions: int,
        codec: str,
    ) -> None:
        """`home`: the directory in which the file lies; it is made with the first batch."""
        self.home, self.shuffle, self.output, self.codec = home, shuffle, output, codec
        self._partitions = partitions
        self._lock = threading.Lock()
        self._fd = -1
        self._size = 0  # of the file as it was given: to write over it needs no room
        self._tables: list[np.ndarray] = []
        self._turn = 0
        self._open = True
        self.totals = Totals()
        self.touched = time.monotonic()
        home.writer(1)

    def take_turn(self) -> int:
        """The number under which this stream may append from now on; earlier numbers are void."""
        with self._lock:
            self._turn += 1
            return self._turn

    def append(self, turn: int, batch: BlockBatch) -> Totals:
        """Append a batch and return what is held now.

        Raises StorageFull or StorageFailed (then the file is as it was before), UnknownShuffle (unregistered
        meanwhile), AttemptSuperseded when another stream took over.
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
                raise self._failure(error) from error
            return description

    def _write(self, data: memoryview, start: int) -> None:
        if self._fd < 0:
            self._fd = self.home.open_partial(self.shuffle, self.output, len(data))
            self._size = os.fstat(self._fd).st_size
        if (grows := start + len(data) - max(start, self._size)) > 0:
            self.home.check_room(grows)
        for again in (True, False):
            try:
                _write_all(self._fd, data, start)
                return
            except OSError as error:
                failure = self._failure(error)
                try:
                    os.ftruncate(self._fd, start)
                except OSError as second:
                    raise self._failure(second) from error
                self._size = min(self._size, start)
                if not again or not isinstance(failure, StorageFull) or not self.home.spares.drop():
                    raise failure from error

    def close(self) -> None:
        """Close the file, leaving it where it is; idempotent."""
        with self._lock:
            if self._open:
                self._open = False
                self.home.writer(-1)
                if self._fd >= 0:
                    os.close(self._fd)

    def discard(self) -> None:
        """Close and delete; idempotent, and fine when the directory is gone already."""
        self.close()
        try:
            self.home.paths.partial(self.shuffle, self.output).unlink(missing_ok=True)
        except OSError as error:
            self.home.failure(error)  # it is deleted when the directory is back

    def _check(self, turn: int) -> None:
        if not self._open or turn != self._turn:
            raise AttemptSuperseded(
                f"a newer stream writes {self.output}, or the attempt has ended",
                remedy="stop writing on this stream",
                shuffle=self.shuffle,
                output=self.output,
            )

    def _failure(self, error: OSError) -> ShuffleError:
        return self.home.failure(error, self.shuffle, self.output)


def _write_all(fd: int, data: memoryview, offset: int) -> None:
    while data:
        count = os.pwrite(fd, data, offset)
        data, offset = data[count:], offset + count
