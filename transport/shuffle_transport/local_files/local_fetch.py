"""A pull whose blocks are read from the worker's files, where this process sees them.

The worker says where the blocks lie; each is held against its checksum before it is handed out. Outputs may share a
file, in which their blocks of a partition lie back to back: these are read together. What cannot be had this way,
output by output, is pulled, in its place in the order.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np

from shuffle_api.errors import BlockCorrupt, ProtocolMismatch, ShuffleError
from shuffle_api.ids import MapAttempt
from shuffle_transport import messages
from shuffle_transport.checksum import crc32c
from shuffle_transport.files import FileIdentity, read_fully
from shuffle_transport.flight_client import FlightClient, Pulled
from shuffle_transport.local_files.access import LocalFileAccess
from shuffle_transport.local_files.index_cache import MOST_BYTES, LocatedOutputs, OutputIndex, Row
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)

WHOLE_BYTES: Final = 1 << 20  # indexes up to this size are asked for whole: other readers of this process need not ask
ANSWER_BYTES: Final = MOST_BYTES // 2  # of all indexes of one answer
RUN_BYTES: Final = 256 << 10  # that lie back to back: as much as stays in the processor's cache until verified
WINDOW_BYTES: Final = 4 << 20  # of scattered blocks, read in the order of the file: neighbours in it are read at once


def check_file(path: str, status: os.stat_result, file: FileIdentity) -> None:
    """:raises OSError: what was found at `path` is another file."""
    if FileIdentity.of(status) != file:
        raise OSError(errno.ESTALE, "it was replaced", path)


class OutputBlocks:
    """Ranges of one committed file, read into memory of this process. A context manager.

    They are read, not mapped: of a file that is cut, or a disk that fails, a read is an error, where a mapping ends the
    process with a signal, at any later time too. Verified blocks stay as they are.

    While it reads, a client holds a shared lock (flock): a worker writes over no file that is locked so
    (`store/file_pool.py`). Once it holds the lock, the client looks at the path: if that still names this file, the
    file is that of a committed output.
    """

    def __init__(self, path: str, end: int, file: FileIdentity | None = None) -> None:
        """
        :param end: where the last of them ends in the file.
        :param file: which one it must be.
        :raises OSError: the path does not name a whole committed file (any more), or it cannot be opened now.
        """
        self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            status = os.fstat(self._fd)
            named = os.stat(path, follow_symlinks=False)
            self.file = FileIdentity.of(status)
            check_file(path, named, self.file)
            if file is not None:
                check_file(path, status, file)
            if not stat.S_ISREG(status.st_mode) or status.st_size < end:
                raise OSError(errno.EINVAL, f"it has {status.st_size} bytes, not {end}", path)
        except BaseException:
            os.close(self._fd)
            raise

    def read(self, offset: int, length: int) -> memoryview:
        """A copy of the bytes from `offset` on. Raises OSError."""
        target = np.empty(length, np.uint8).data  # as bytearray, but not zeroed first
        done = read_fully(self._fd, offset, target)
        if done < length:
            raise OSError(errno.EINVAL, f"it ends at {offset + done}")
        return target.toreadonly()

    def __enter__(self) -> OutputBlocks:
        return self

    def close(self) -> None:
        """Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def __exit__(self, *exception: object) -> None:
        self.close()


class FetchStream(Protocol):
    """The items of one pull, once; `cancel` ends it from any thread."""

    def __iter__(self) -> Iterator[Pulled | ShuffleError]: ...

    def cancel(self) -> None: ...


Wire: TypeAlias = Callable[[Sequence[MapAttempt]], FetchStream]
"""Begins a pull of these outputs over the wire, of the same partitions."""


Served: TypeAlias = Callable[[OutputIndex, int, int], None]
"""Told how many blocks and bytes of an output came from its file, and by which index."""


def locate_blocks(
    local_files: LocalFileAccess, worker: str, client: FlightClient, ticket: pb.GetTicket, partitions: int = 0
) -> LocatedOutputs | None:
    """Where the blocks of a ticket with `maps` lie, as far as they lie in files; None when all are to be pulled.

    :param partitions: how many the shuffle has: of those that the ticket is not about something may be learnt too.
    """
    shuffle = messages.shuffle_id(ticket.shuffle)
    nonce = local_files.nonce(worker, client)
    if nonce is None:
        return None
    found = {each: local_files.known.find(worker, shuffle, each) for each in map(messages.map_attempt, ticket.maps)}
    indexes = {output: index for output, index in found.items() if index is not None}
    unknown = [output for output, index in found.items() if index is None]
    try:
        if unknown:
            indexes |= _ask(local_files, nonce, client, ticket, unknown, partitions)
    except ShuffleError as error:
        local_files.failed(worker, error)
        return None
    return LocatedOutputs(local_files.known, worker, shuffle, indexes)


def _ask(
    local_files: LocalFileAccess,
    nonce: bytes,
    client: FlightClient,
    ticket: pb.GetTicket,
    outputs: Sequence[MapAttempt],
    partitions: int,
) -> dict[MapAttempt, OutputIndex]:
    """What the worker says of these outputs. Raises ShuffleError."""
    asked = pb.GetTicket(
        shuffle=ticket.shuffle,
        first_partition=ticket.first_partition,
        end_partition=ticket.end_partition,
        maps=map(messages.attempt_of, outputs),
    )
    whole = ticket.end_partition - ticket.first_partition < partitions
    request = pb.LocateBlocksRequest(
        nonce=nonce,
        ticket=asked,
        whole_below=min(WHOLE_BYTES, ANSWER_BYTES // len(outputs)) if whole else 0,
        together=True,
    )
    results = [messages.parse(pb.LocatedBlocks, result) for result in local_files.act(client, "locate", request)]
    located = [each for result in results for each in result.ranges or (result,)]
    if [each.output for each in located] != list(asked.maps):
        raise ProtocolMismatch(f"{client.address} located other outputs than were asked for")
    indexes = {}
    for output, each in zip(outputs, located, strict=True):
        if each.HasField("error"):  # which the wire says as well, in a form of its own
            continue
        try:
            indexes[output] = OutputIndex.of(each)
        except ProtocolMismatch as error:
            log.info("%s is pulled: %s", output, error)
    return indexes


_Block: TypeAlias = tuple[MapAttempt, Row]


_Wanted: TypeAlias = tuple[MapAttempt, OutputIndex, list[Row]]
"""What is to be read of one output. A plain tuple: one is made for each output of each read."""


@dataclass(slots=True)
class _OpenFile:
    """A file that is open, and what is to be read of it: outputs that follow one another and lie in it."""

    path: str
    blocks: OutputBlocks
    wanted: list[_Wanted]

    def has(self, index: OutputIndex) -> bool:
        """Whether this index is of the same file."""
        return index.path == self.path and index.file in (None, self.blocks.file)


class LocalFetch:
    """The blocks of `partitions` out of `outputs`, in this order, those that are `located` read from files.

    :param wire: pulls the others.
    """

    def __init__(
        self, outputs: Sequence[MapAttempt], partitions: range, located: LocatedOutputs, wire: Wire, served: Served
    ) -> None:
        self._outputs, self._partitions, self._wire, self._served = outputs, partitions, wire, served
        self._located = located
        self._pull: FetchStream | None = None
        self._cancelled = False

    def __iter__(self) -> Iterator[Pulled | ShuffleError]:
        """Raises what a pull raises. BlockCorrupt may be the file's fault or the disk's: ask the worker then."""
        waiting: list[MapAttempt] = []
        opened: _OpenFile | None = None  # what is to be read of it is in front of the outputs in `waiting`
        try:
            for output in self._outputs:
                found = self._find(output)
                if opened is not None:
                    if found is not None and opened.has(found[1]):
                        opened.wanted.append(found)
                        continue
                    yield from self._read(opened)
                    opened = None
                try:
                    blocks = None if found is None else _open(found[1], found[2])
                except (OSError, ValueError, ProtocolMismatch) as error:
                    self._wrong(output, error)
                    found = None
                if found is None:
                    waiting.append(output)
                    continue
                if blocks is not None:
                    opened = _OpenFile(found[1].path, blocks, [found])
                if waiting:
                    yield from self._pulled(waiting)
                    waiting = []
            if opened is not None:
                yield from self._read(opened)
        finally:
            if opened is not None:
                opened.blocks.close()
        if waiting:
            yield from self._pulled(waiting)

    def cancel(self) -> None:
        """End what goes over the wire. What lies in a file here needs nobody any more."""
        self._cancelled = True
        if self._pull is not None:
            self._pull.cancel()

    def _find(self, output: MapAttempt) -> _Wanted | None:
        """None: it is to be pulled."""
        index = self._located.get(output)
        try:
            return None if index is None else (output, index, index.between(self._partitions))
        except ProtocolMismatch as error:
            self._wrong(output, error)
            return None

    def _wrong(self, output: MapAttempt, error: Exception) -> None:
        log.info("%s is pulled: %s", output, error)
        self._located.wrong(output)

    def _read(self, opened: _OpenFile) -> Iterator[Pulled]:
        with opened.blocks:
            try:
                yield from _verified(opened)
            except BlockCorrupt as error:
                if error.output is not None:
                    self._located.wrong(error.output)
                raise
        for output, known, rows in opened.wanted:
            self._located.right(output, opened.blocks.file)
            self._served(known, len(rows), _size(rows))

    def _pulled(self, outputs: Sequence[MapAttempt]) -> Iterator[Pulled | ShuffleError]:
        self._pull = pull = self._wire(outputs)
        if self._cancelled:
            pull.cancel()
        try:
            yield from pull
        finally:
            self._pull = None
            pull.cancel()


def _open(index: OutputIndex, rows: list[Row]) -> OutputBlocks | None:
    """The file, None if nothing of it is wanted. Raises OSError, ValueError when it is not the one that was told of."""
    if rows:
        return OutputBlocks(index.path, max(row[5] + row[2] for row in rows), index.file)
    if index.file is not None:
        check_file(index.path, os.stat(index.path, follow_symlinks=False), index.file)
    return None


def _size(rows: list[Row]) -> int:
    return sum(row[2] for row in rows)


def _verified(opened: _OpenFile) -> Iterator[Pulled]:
    for window, scattered in _windows(opened.wanted):
        payloads = _payloads(opened.blocks, window) if scattered else _payload(opened.blocks, window)
        for (output, row), block in zip(window, payloads, strict=True):
            partition, checksum, _, raw_length, records, _ = row
            if crc32c(block) != checksum:
                raise _corrupt(output, partition, f"does not match its checksum {checksum:#010x}")
            yield Pulled(output, partition, raw_length, records, block)


def _windows(wanted: Sequence[_Wanted]) -> Iterator[tuple[list[_Block], bool]]:
    """Blocks to be read at once, and whether they are scattered: RUN_BYTES of such as lie back to back, WINDOW_BYTES of
    others, or one that has more."""
    window: list[_Block] = []
    end = size = 0
    scattered = False
    for output, _, rows in wanted:
        for row in rows:
            apart = bool(window) and row[5] != end
            if window and size + row[2] > (WINDOW_BYTES if scattered or apart else RUN_BYTES):
                yield window, scattered
                window, size, scattered, apart = [], 0, False, False
            scattered |= apart
            window.append((output, row))
            size += row[2]
            end = row[5] + row[2]
    if window:
        yield window, scattered


def _payload(blocks: OutputBlocks, run: Sequence[_Block]) -> list[memoryview]:
    """Those of blocks that lie back to back."""
    output, first = run[0]
    try:
        payload = blocks.read(first[5], sum([row[2] for _, row in run]))
    except OSError as error:
        raise _corrupt(output, first[0], f"cannot be read: {error}") from error
    return [payload[row[5] - first[5] : row[5] - first[5] + row[2]] for _, row in run]


def _payloads(blocks: OutputBlocks, window: Sequence[_Block]) -> list[memoryview]:
    """Those of blocks that lie here and there, read in the order in which they lie in the file."""
    order = sorted(range(len(window)), key=lambda at: window[at][1][5])
    payloads = [memoryview(b"")] * len(window)
    run: list[int] = []
    end = 0
    for at in order:
        row = window[at][1]
        if run and row[5] != end:
            _fill(payloads, run, blocks, window)
            run = []
        run.append(at)
        end = row[5] + row[2]
    _fill(payloads, run, blocks, window)
    return payloads


def _fill(payloads: list[memoryview], run: Sequence[int], blocks: OutputBlocks, window: Sequence[_Block]) -> None:
    for at, payload in zip(run, _payload(blocks, [window[at] for at in run]), strict=True):
        payloads[at] = payload


def _corrupt(output: MapAttempt, partition: int, what: str) -> BlockCorrupt:
    return BlockCorrupt(
        f"a block of partition {partition}, in the worker's file, {what}",
        remedy="ask the worker for it; if it stays, report the output as lost and run the map again",
        output=output,
    )
