"""The ends of `bench.ingest` that hand files over: what a task on the worker's host does instead of push and pull."""

from __future__ import annotations

from collections.abc import Sequence

from shuffle_api.errors import ShuffleError
from shuffle_transport.blocks import Block
from shuffle_transport.flight_client import FlightClient, PullStream, PushTarget
from shuffle_transport.local_files import LocalFetch, LocalFileAccess, LocalFileWriter, locate_blocks
from shuffle_transport.messages import map_attempt
from shuffle_transport.proto import flight_shuffle_pb2 as pb

BLOCKS_PER_WRITE = 8  # as the plain writer has pieces
WORKER = "bench"


def write_output(hand_over: LocalFileAccess, client: FlightClient, target: PushTarget, blocks: Sequence[Block]) -> None:
    """One map output, into a file that the worker lends. Raises RuntimeError if it lends none."""
    file = LocalFileWriter.create(hand_over, WORKER, client, target)
    if file is None:
        raise RuntimeError("the worker lends no file")
    try:
        for first in range(0, len(blocks), BLOCKS_PER_WRITE):
            file.append(blocks[first : first + BLOCKS_PER_WRITE])
        file.commit()
    finally:
        file.close()


def read_outputs(client: FlightClient, ticket: pb.GetTicket) -> int:
    """Payload bytes of the outputs that the ticket names, each block checked. Raises RuntimeError if one is no file."""
    located = locate_blocks(LocalFileAccess(ticket.shuffle.app), WORKER, client, ticket)
    if located is None:
        raise RuntimeError("the worker locates nothing")

    def wire(outputs: object) -> PullStream:
        raise RuntimeError(f"{outputs} cannot be read from their files")

    outputs = [map_attempt(each) for each in ticket.maps]
    partitions = range(ticket.first_partition, ticket.end_partition)
    total = 0
    for item in LocalFetch(outputs, partitions, located, wire, lambda *_: None):
        if isinstance(item, ShuffleError):
            raise item
        total += item.payload.nbytes
    return total
