"""A pull whose blocks are read from the worker's files, where this process sees them.

The worker says where the blocks lie; each is held against its checksum before it is handed out. What cannot be had this
way, output by output, is pulled, in its place in the order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from shuffle_api.errors import BlockCorrupt, ProtocolMismatch, ShuffleError
from shuffle_api.ids import MapAttempt
from shuffle_transport import messages
from shuffle_transport.checksum import BLOCK_ROW, crc32c
from shuffle_transport.flight_client import FlightClient, Pulled
from shuffle_transport.hand_over.mapped import OutputBlocks
from shuffle_transport.hand_over.sight import HandOver
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)

LOCATED_ROW = np.dtype([*((name, BLOCK_ROW[name]) for name in BLOCK_ROW.names or ()), ("offset", "<i8")])

Row: TypeAlias = tuple[int, int, int, int, int, int]
"""Partition, crc32c, length, raw_length, records, offset."""


class Stream(Protocol):
    """The items of one pull, once; `cancel` ends it from any thread."""

    def __iter__(self) -> Iterator[Pulled | ShuffleError]: ...

    def cancel(self) -> None: ...


Wire: TypeAlias = Callable[[Sequence[MapAttempt]], Stream]
"""Begins a pull of these outputs over the wire, of the same partitions."""


def locate_blocks(
    hand_over: HandOver, worker: str, client: FlightClient, ticket: pb.GetTicket
) -> list[pb.LocatedBlocks] | None:
    """Where the blocks of a ticket with `maps` lie, one answer for each; None when they are to be pulled."""
    nonce = hand_over.nonce(worker, client)
    if nonce is None:
        return None
    try:
        results = hand_over.act(client, "locate", pb.LocateBlocksRequest(nonce=nonce, ticket=ticket))
        located = [messages.parse(pb.LocatedBlocks, result) for result in results]
        if [each.output for each in located] != list(ticket.maps):
            raise ProtocolMismatch(f"{client.address} located other outputs than were asked for")
        return located
    except ShuffleError as error:
        hand_over.failed(worker, error)
        return None


class LocatedPull:
    """The blocks of `partitions` out of `outputs`, in this order, those that are `located` read from files.

    :param wire: pulls the others.
    :param served: is told how many bytes of an output came from its file.
    """

    def __init__(
        self,
        outputs: Sequence[MapAttempt],
        partitions: range,
        located: Sequence[pb.LocatedBlocks],
        wire: Wire,
        served: Callable[[int], None],
    ) -> None:
        self._outputs, self._partitions, self._wire, self._served = outputs, partitions, wire, served
        self._located = {messages.map_attempt(each.output): each for each in located}
        self._pull: Stream | None = None
        self._cancelled = False

    def __iter__(self) -> Iterator[Pulled | ShuffleError]:
        """Raises what a pull raises. BlockCorrupt may be the file's fault or the mapping's: ask the worker then."""
        waiting: list[MapAttempt] = []
        for output in self._outputs:
            located = self._located.get(output)
            if located is None or located.HasField("error"):  # which the wire says as well, in a form of its own
                waiting.append(output)
                continue
            try:
                rows = self._rows(located)
                blocks = _open(located.path, rows) if rows else None
            except (OSError, ValueError, ProtocolMismatch) as error:
                log.info("%s is pulled: %s", output, error)
                waiting.append(output)
                continue
            if waiting:
                yield from self._pulled(waiting)
                waiting = []
            if blocks is not None:
                with blocks:
                    yield from _verified(output, rows, blocks)
                self._served(_size(rows))
        if waiting:
            yield from self._pulled(waiting)

    def cancel(self) -> None:
        """End what goes over the wire. What lies in a file here needs nobody any more."""
        self._cancelled = True
        if self._pull is not None:
            self._pull.cancel()

    def _pulled(self, outputs: Sequence[MapAttempt]) -> Iterator[Pulled | ShuffleError]:
        self._pull = pull = self._wire(outputs)
        if self._cancelled:
            pull.cancel()
        try:
            yield from pull
        finally:
            self._pull = None
            pull.cancel()

    def _rows(self, located: pb.LocatedBlocks) -> list[Row]:
        """The blocks' table. Raises ProtocolMismatch when it cannot be an answer to what was asked."""
        if len(located.index) % LOCATED_ROW.itemsize:
            raise ProtocolMismatch(f"an index of {len(located.index)} bytes")
        rows: list[Row] = np.frombuffer(located.index, LOCATED_ROW).tolist()
        last, end = self._partitions.start, self._partitions.stop
        for partition, _, length, raw_length, records, offset in rows:
            if not last <= partition < end or not 0 <= length <= raw_length or records < 0 or offset < 0:
                raise ProtocolMismatch("blocks that were not asked for")
            last = partition
        return rows


def _open(path: str, rows: list[Row]) -> OutputBlocks:
    return OutputBlocks(path, _size(rows), max(offset + length for _, _, length, _, _, offset in rows))


def _size(rows: list[Row]) -> int:
    return sum(length for _, _, length, _, _, _ in rows)


def _verified(output: MapAttempt, rows: list[Row], blocks: OutputBlocks) -> Iterator[Pulled]:
    for partition, checksum, length, raw_length, records, offset in rows:
        try:
            payload = blocks.view(offset, length)
        except OSError as error:
            raise _corrupt(output, partition, f"cannot be read: {error}") from error
        if crc32c(payload) != checksum:
            raise _corrupt(output, partition, f"does not match its checksum {checksum:#010x}")
        yield Pulled(output, partition, raw_length, records, payload)


def _corrupt(output: MapAttempt, partition: int, what: str) -> BlockCorrupt:
    return BlockCorrupt(
        f"a block of partition {partition}, in the worker's file, {what}",
        remedy="ask the worker for it; if it stays, report the output as lost and run the map again",
        output=output,
    )
