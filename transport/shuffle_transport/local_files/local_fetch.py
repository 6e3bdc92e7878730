"""A pull whose blocks are read from the worker's files, where this process sees them.

The worker says where the blocks lie; each is held against its checksum before it is handed out. What cannot be had this
way, output by output, is pulled, in its place in the order.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias

from shuffle_api.errors import BlockCorrupt, ProtocolMismatch, ShuffleError
from shuffle_api.ids import MapAttempt
from shuffle_transport import messages
from shuffle_transport.checksum import crc32c
from shuffle_transport.flight_client import FlightClient, Pulled
from shuffle_transport.local_files.access import LocalFileAccess
from shuffle_transport.local_files.index_cache import MOST_BYTES, LocatedOutputs, OutputIndex, Row
from shuffle_transport.local_files.output_blocks import OutputBlocks, check_file
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)

WHOLE_BYTES: Final = 1 << 20  # indexes up to this size are asked for whole: other readers of this process need not ask
ANSWER_BYTES: Final = MOST_BYTES // 2  # of all indexes of one answer
RUN_BYTES: Final = (
    256 << 10
)  # neighbours that are read at once: as much as stays in the processor's cache until verified


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
        nonce=nonce, ticket=asked, whole_below=min(WHOLE_BYTES, ANSWER_BYTES // len(outputs)) if whole else 0
    )
    located = [messages.parse(pb.LocatedBlocks, result) for result in local_files.act(client, "locate", request)]
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
        for output in self._outputs:
            index = self._located.get(output)
            if index is None:
                waiting.append(output)
                continue
            try:
                rows = index.between(self._partitions)
                blocks = _open(index, rows)
            except (OSError, ValueError, ProtocolMismatch) as error:
                log.info("%s is pulled: %s", output, error)
                self._located.wrong(output)
                waiting.append(output)
                continue
            if waiting:
                yield from self._pulled(waiting)
                waiting = []
            if blocks is not None:
                yield from self._read(output, index, rows, blocks)
        if waiting:
            yield from self._pulled(waiting)

    def cancel(self) -> None:
        """End what goes over the wire. What lies in a file here needs nobody any more."""
        self._cancelled = True
        if self._pull is not None:
            self._pull.cancel()

    def _read(self, output: MapAttempt, index: OutputIndex, rows: list[Row], blocks: OutputBlocks) -> Iterator[Pulled]:
        with blocks:
            try:
                yield from _verified(output, rows, blocks)
            except BlockCorrupt:
                self._located.wrong(output)
                raise
        self._located.right(output, blocks.file)
        self._served(index, len(rows), _size(rows))

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


def _verified(output: MapAttempt, rows: list[Row], blocks: OutputBlocks) -> Iterator[Pulled]:
    for run in _runs(rows):
        start = run[0][5]
        try:
            payload = blocks.read(start, _size(run))
        except OSError as error:
            raise _corrupt(output, run[0][0], f"cannot be read: {error}") from error
        for partition, checksum, length, raw_length, records, offset in run:
            block = payload[offset - start : offset - start + length]
            if crc32c(block) != checksum:
                raise _corrupt(output, partition, f"does not match its checksum {checksum:#010x}")
            yield Pulled(output, partition, raw_length, records, block)


def _runs(rows: list[Row]) -> Iterator[list[Row]]:
    """Blocks that lie back to back, RUN_BYTES of them or one that has more."""
    run: list[Row] = []
    size = 0
    for row in rows:
        if run and (row[5] != run[0][5] + size or size + row[2] > RUN_BYTES):
            yield run
            run, size = [], 0
        run.append(row)
        size += row[2]
    if run:
        yield run


def _corrupt(output: MapAttempt, partition: int, what: str) -> BlockCorrupt:
    return BlockCorrupt(
        f"a block of partition {partition}, in the worker's file, {what}",
        remedy="ask the worker for it; if it stays, report the output as lost and run the map again",
        output=output,
    )
