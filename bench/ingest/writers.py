"""The writer processes of `bench.ingest`: the same bytes as pushes, by file, or to plain files."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path

from bench.ingest.by_file import WORKER, write_output
from bench.ingest.plain import write_files
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_transport.blocks import Block, table_rows, totals_of
from shuffle_transport.checksum import crc32c
from shuffle_transport.flight_client import FlightClient, PushTarget
from shuffle_transport.local_files import LocalFileAccess

TIMEOUT = 120.0
NO_SHUFFLE = ShuffleId("plain", 0)
_PIECE = 2 << 20


@dataclass(frozen=True, slots=True)
class Work:
    """What all writers together write: each `outputs` files of a block per partition."""

    writers: int
    outputs: int
    partitions: int
    block_bytes: int

    @property
    def files(self) -> int:
        return self.writers * self.outputs

    @property
    def bytes(self) -> int:
        return self.files * self.partitions * self.block_bytes


@dataclass(frozen=True, slots=True)
class Target:
    """Where writers write to: a shuffle of the worker at an address, as pushes or by file; or files below `plain`."""

    shuffle: ShuffleId = NO_SHUFFLE
    worker: str = ""
    by_file: bool = False
    plain: str = ""


class Writers:
    """The processes, which live through all rounds. A context manager."""

    def __init__(self, work: Work, scratch: Path) -> None:
        """`scratch`: a directory of the file system that is written to."""
        self._work, self._scratch = work, scratch
        context = multiprocessing.get_context("spawn")
        self._begin = context.Event()
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for number in range(work.writers):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_writer, args=(work, number, theirs, self._begin), name=f"writer-{number}", daemon=True
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def write(self, target: Target) -> tuple[int, float]:
        """Bytes written, and seconds from the moment at which all writers are ready until the last one is done.

        A writer is ready when it is connected, and knows whether the worker is on its host, as a task's process does
        from its first map on.
        """
        self._begin.clear()
        for pipe in self._pipes:
            pipe.send(target)
        for pipe in self._pipes:
            _received(pipe)
        _free_used_pages(self._scratch, self._work.bytes)
        started = time.monotonic()  # the same clock in all processes
        self._begin.set()
        return self._work.bytes, max(_received(pipe) for pipe in self._pipes) - started

    def __enter__(self) -> Writers:
        return self

    def __exit__(self, *error: object) -> None:
        for pipe in self._pipes:
            pipe.close()  # they end with it
        for process in self._processes:
            process.join(TIMEOUT)
            process.close()


def _received(pipe: Connection) -> float:
    """What a writer says: when it was done. Raises EOFError when it failed, TimeoutError."""
    if not pipe.poll(TIMEOUT):
        raise TimeoutError("a writer says nothing")
    moment: float = pipe.recv()
    return moment


def _free_used_pages(scratch: Path, size: int) -> None:
    """Leave `size` bytes of free memory that was in use a moment ago, whatever was written or deleted before.

    A virtual machine may give free pages back to its host within seconds; to write to them again then takes several
    times as long. Who writes first after a deletion would not pay for that, and the others would.
    """
    path = scratch / "pages"
    with mmap.mmap(-1, _PIECE) as piece, open(path, "wb", buffering=0) as file:
        piece.write(os.urandom(_PIECE))
        for _ in range(-(-size // _PIECE)):
            file.write(piece)
    path.unlink()


def _writer(work: Work, number: int, pipe: Connection, begin: Event) -> None:
    """One writer process: for each target it receives, it sends the time when it is ready and when it has written."""
    blocks = random_blocks(work.partitions, work.block_bytes)
    client: FlightClient | None = None
    while True:
        try:
            target: Target = pipe.recv()
        except EOFError:
            break
        if target.worker and client is None:
            client, hand_over = FlightClient(target.worker, timeout=TIMEOUT), LocalFileAccess(target.shuffle.app)
            hand_over.nonce(WORKER, client)
        pipe.send(time.monotonic())
        begin.wait(TIMEOUT)
        if client is None or not target.worker:
            write_files(Path(target.plain), number, work.outputs, [memoryview(block.payload) for block in blocks])
        else:
            for map_id in range(number * work.outputs, (number + 1) * work.outputs):
                if target.by_file:
                    to = PushTarget(target.shuffle, MapAttempt(map_id, 0), work.partitions, "none")
                    write_output(hand_over, client, to, blocks)
                else:
                    push(client, target.shuffle, map_id, work.partitions, blocks)
        pipe.send(time.monotonic())
    if client is not None:
        client.close()


def random_blocks(count: int, size: int) -> list[Block]:
    """A block for each of `count` partitions, all with the same random bytes."""
    payload = os.urandom(size)
    return [Block(partition, crc32c(payload), size, 1, payload) for partition in range(count)]


def push(client: FlightClient, shuffle: ShuffleId, map_id: int, partitions: int, blocks: Sequence[Block]) -> None:
    """One map output, over the wire."""
    totals = totals_of(table_rows(blocks))
    target = PushTarget(shuffle, MapAttempt(map_id, 0), partitions, "none")
    client.push(target, blocks, first_block=0, end=totals, commit=True)
