"""What tasks hold: a writer that gathers records to blocks of a file, and a reader of such blocks."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from folder_shuffle.store import Block, ShuffleFiles, Winner
from shuffle_api import Buffer, MapAttempt, MapOutput, ShuffleReader, ShuffleSpec, ShuffleWriter
from shuffle_api.errors import InvalidArgument
from shuffle_api.records import frame, unpack_records


class FolderWriter(ShuffleWriter):
    """Gathers up to `buffer_bytes`, then writes a block per partition. The file is made with the first block."""

    def __init__(self, files: ShuffleFiles, spec: ShuffleSpec, attempt: MapAttempt, buffer_bytes: int) -> None:
        spec.check_map(attempt.map)
        self._files, self._spec, self._attempt, self._limit = files, spec, attempt, buffer_bytes
        self._path: Path = files.data_file(attempt)
        self._file = self._path.open("xb", buffering=0)
        self._gathered: dict[int, list[bytes]] = {}
        self._held = 0
        self._offset = 0
        self._blocks: list[Block] = []
        self._committed: MapOutput | None = None

    def write(self, partition: int, record: Buffer) -> None:
        self._check(partition)
        framed = frame(record)
        self._gathered.setdefault(partition, []).append(framed)
        self._held += len(framed)
        if self._held >= self._limit:
            self._flush()

    def write_block(self, partition: int, payload: Buffer, records: int) -> None:
        """See `shuffle_api.SupportsWriteBlock`."""
        self._check(partition)
        if records < 0:
            raise InvalidArgument(f"records {records} is negative", shuffle=self._spec.id, output=self._attempt)
        self._flush()
        self._append(partition, bytes(payload), records)

    def commit(self) -> MapOutput:
        if self._committed is None:
            self._check(0)
            self._flush()
            self._file.close()
            stated = Winner(self._attempt, self._path.name, tuple(self._blocks))
            try:
                self._committed = self._files.commit(stated)
            finally:
                if self._committed != stated.output:
                    self._path.unlink(missing_ok=True)
        return self._committed

    def abort(self) -> None:
        if self._committed is None and not self._file.closed:
            self._file.close()
            self._path.unlink(missing_ok=True)

    def _check(self, partition: int) -> None:
        if self._file.closed:
            state = "aborted" if self._committed is None else "committed"
            raise InvalidArgument(f"the writer has {state}", shuffle=self._spec.id, output=self._attempt)
        self._spec.check_partition(partition)

    def _flush(self) -> None:
        gathered, self._gathered, self._held = self._gathered, {}, 0
        for partition, records in gathered.items():
            self._append(partition, b"".join(records), len(records))

    def _append(self, partition: int, payload: bytes, records: int) -> None:
        left = memoryview(payload)
        while left:
            left = left[self._file.write(left) :]
        self._blocks.append(Block(partition, self._offset, len(payload), records, zlib.crc32(payload)))
        self._offset += len(payload)


class FolderReader(ShuffleReader):
    """Reads block by block; holds one at a time."""

    def __init__(self, files: ShuffleFiles, spec: ShuffleSpec, partitions: range, maps: range | None) -> None:
        self._maps = spec.check_ranges(partitions, maps)
        self._files, self._spec, self._partitions = files, spec, partitions
        self._closed = False

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        for partition, _, payload, _ in self.read_blocks():
            for record in unpack_records(payload):
                self._check_open()
                yield partition, record

    def read_blocks(self) -> Iterator[tuple[int, MapAttempt, bytes, int]]:
        """See `shuffle_api.SupportsReadBlocks`."""
        self._check_open()
        self._begin_reading(self._spec.id)
        for winner in self._files.winners(self._maps):
            for block, payload in self._files.payloads(winner, self._partitions):
                self._check_open()
                yield block.partition, winner.attempt, payload, block.records

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgument("the reader is closed", shuffle=self._spec.id)
