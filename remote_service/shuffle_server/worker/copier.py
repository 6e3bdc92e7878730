"""Copying a committed map output to another worker: its blocks are read, checked, and pushed as their writer did."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import numpy as np

from shuffle_api.errors import MapOutputLost, StreamBroken
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import Totals, WorkerInfo
from shuffle_server.proto import registry_pb2 as pb
from shuffle_server.store.failures import busy
from shuffle_server.store.format import TornFile
from shuffle_server.store.output_file import OutputFile, read_into, table_of
from shuffle_server.store.store import Store
from shuffle_server.worker.actions import REPLICATE
from shuffle_transport import messages
from shuffle_transport.blocks import Block, add_rows, table_rows
from shuffle_transport.checksum import crc32c
from shuffle_transport.flight_client import FlightClient, PushTarget
from shuffle_transport.security import Credentials

PIECE_BYTES = 8 << 20  # read and pushed at a time, more for a larger block
PIECE_SECONDS = 60.0  # for one piece, the other worker's commit among them


class Copier:
    """Reads from this worker's store. Thread-safe; close it at the end.

    :param credentials: the cluster's.
    """

    def __init__(self, store: Store, credentials: Credentials) -> None:
        self._store, self._credentials = store, credentials
        self._lock = threading.Lock()
        self._clients: dict[str, FlightClient] = {}  # by address

    def copy(self, shuffle: ShuffleId, output: MapAttempt, to: WorkerInfo) -> Totals:
        """Have `to` hold a committed output of this worker too, as the registry knows when this returns.

        The blocks go in the order in which they were written, so that the copy has the totals of the original.

        :raises MapOutputLost: it cannot be read here.
        :raises ShuffleError: what the other worker, or the way there, raises.
        """
        file, fd = self._store.open_output(shuffle, output)
        try:
            target = PushTarget(shuffle, output, file.description.partitions, file.description.codec, copy=True)
            client = self._client(to)
            sent = Totals()
            for blocks, last in _pieces(file, fd):
                end = add_rows(sent, table_rows(blocks))
                try:
                    client.push(target, blocks, first_block=sent.blocks, end=end, commit=last)
                except MapOutputLost as error:  # what the other worker held of it: nothing is lost here
                    raise StreamBroken(f"worker {to.id}: {error.message}") from error
                sent = end
            return sent
        except (TornFile, OSError) as error:
            raise busy(error, shuffle, output) or MapOutputLost(
                f"{file.path}: {error}", remedy="run this map again", shuffle=shuffle, output=output
            ) from error
        finally:
            os.close(fd)

    def ask(self, worker: WorkerInfo, shuffle: ShuffleId, output: MapAttempt) -> None:
        """Have a worker copy an output that it holds, until there are as many copies as there should be.

        Raises what it answers, ServerUnreachable, DeadlineExceeded, StreamBroken.
        """
        request = pb.HeldOutput(shuffle=messages.key_of(shuffle), output=messages.attempt_of(output))
        self._client(worker).act(REPLICATE, request.SerializeToString())

    def _client(self, worker: WorkerInfo) -> FlightClient:
        with self._lock:
            client = self._clients.get(worker.address)
            if client is None:
                client = FlightClient(worker.address, timeout=PIECE_SECONDS, credentials=self._credentials)
                self._clients[worker.address] = client
            return client

    def close(self) -> None:
        """Close the connections; idempotent."""
        with self._lock:
            clients = list(self._clients.values())
            self._clients.clear()
        for client in clients:
            client.close()


def _pieces(file: OutputFile, fd: int) -> Iterator[tuple[list[Block], bool]]:
    """All blocks in the order written, a piece at a time, and whether it is the last one. Raises TornFile, OSError."""
    index = file.index[file.order()]
    ends = np.cumsum(index["length"])
    start, taken = 0, 0
    while True:
        end = int(np.searchsorted(ends, taken + PIECE_BYTES, side="right"))
        end = min(max(end, start + 1), len(index))
        yield _read(index[start:end], fd), end == len(index)
        if end == len(index):
            return
        start, taken = end, int(ends[end - 1])


def _read(entries: np.ndarray, fd: int) -> list[Block]:
    blocks = []
    for row, offset in zip(table_of(entries).tolist(), entries["offset"].tolist(), strict=True):
        partition, checksum, length, raw_length, records = row
        payload = bytearray(length)
        read_into(fd, offset, memoryview(payload))
        if crc32c(payload) != checksum:  # a copy of it would look as good as the original
            raise TornFile(f"the block at {offset} does not match its checksum {checksum:#010x}")
        blocks.append(Block(partition, checksum, raw_length, records, payload))
    return blocks
