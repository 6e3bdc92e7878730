"""The tasks of a streaming job: a producer and a consumer, each a process that may die at any moment.

A producer writes the numbers 0..N-1; a consumer counts what it sees. What they store they store at checkpoints, in
files that appear whole or not at all.
"""

from __future__ import annotations

import os
import pickle
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from shuffle_api.errors import BlockCorrupt, DeadlineExceeded, ShuffleError, StorageFailed
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from shuffle_api.records import unpack_records
from shuffle_api.streaming import Barrier, Captured, ReaderState, WriterState
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.pipelined import DataBlock, PipelinedShuffle, PipelinedWriter
from tests.faults.explore import planted
from tests.faults.explore.processes import become

RECORD = struct.Struct("<IQ")
AHEAD = 500
STEP = 250
"""Records after which a producer says how far it is."""
FAILED, LEFT, DAMAGED = 2, 3, 4
"""Exit statuses: an error of the shuffle; the supervisor is gone; a log that a replay reads is damaged."""
"""Records that an at_most_once producer says it may have written, before it writes them."""


@dataclass(frozen=True, slots=True)
class Task:
    """The parameters of a process. `checkpoint` is the one to go on from, -1 for none; a consumer stores its state at
    each `every`-th."""

    handle: ShuffleHandle
    options: dict[str, OptionValue]
    directory: Path
    index: int
    attempt: int
    checkpoint: int
    records: int
    partitions: range
    pause: float
    every: int


def store(path: Path, value: Any) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_bytes(pickle.dumps(value))
    partial.rename(path)


def stored(directory: Path, checkpoint: int, kind: str, index: int) -> Any:
    """What a task stored at a checkpoint; None without a checkpoint."""
    if checkpoint < 0:
        return None
    return pickle.loads((directory / f"{checkpoint}" / f"{kind}-{index}").read_bytes())


def produce(task: Task, orders: Connection) -> None:
    """Main of a producer."""
    restore: WriterState | None = stored(task.directory, task.checkpoint, "producer", task.index)
    lossy = task.options["guarantee"] == "at_most_once"
    with PipelinedShuffle(task.options) as plugin:
        writer = plugin.writer(task.handle, MapAttempt(task.index, task.attempt), restore=restore)
        said = threading.Lock()
        answering = threading.Thread(target=_answer, args=(task, writer, orders, said), daemon=True)
        answering.start()
        reserved = task.directory / f"reserved-{task.index}"
        first = restore.records if restore is not None else 0
        if lossy and reserved.exists():
            first = pickle.loads(reserved.read_bytes())
        partitions = task.handle.spec.partitions
        for number in range(first, task.records):
            if lossy and (number - first) % AHEAD == 0:
                store(reserved, number + AHEAD)
            writer.write(number % partitions, RECORD.pack(task.index, number))
            if number % STEP == 0:
                with said:
                    orders.send(("wrote", number))
            if number % 50 == 0:
                time.sleep(task.pause)
        writer.commit()
        writer.drain(60)
        answering.join()  # until the supervisor has what it wants


def _answer(task: Task, writer: PipelinedWriter, orders: Connection, said: threading.Lock) -> None:
    """The producer's part in checkpoints, beside its writing."""
    try:
        while (checkpoint := orders.recv()) is not None:
            try:
                if not writer.closed:
                    writer.emit(Barrier(checkpoint))
                state = writer.state(checkpoint, 20)
            except ShuffleError as error:
                print(f"producer {task.index}: checkpoint {checkpoint}: {error}", flush=True)
                continue
            store(task.directory / f"{checkpoint}" / f"producer-{task.index}", state)
            with said:
                orders.send(("done", checkpoint))
    except (EOFError, OSError):
        os._exit(LEFT)  # the supervisor has left


def consume(task: Task, orders: Connection) -> None:
    """Main of a consumer."""
    seen: Counter[tuple[int, int]] = Counter()
    restore: ReaderState | None = None
    if task.checkpoint >= 0:
        counts, restore = stored(task.directory, task.checkpoint, "consumer", task.index)
        seen.update(counts)
    elif task.every > 1:
        restore = ReaderState.beginning(task.partitions, range(task.handle.spec.maps))
    lossy = task.options["guarantee"] == "at_most_once"
    sink = (task.directory / f"sink-{task.index}-{task.attempt}").open("ab", buffering=0) if lossy else None
    snapshots: dict[int, Counter[tuple[int, int]]] = {}
    with PipelinedShuffle(task.options) as plugin:
        reader = plugin.reader(task.handle, task.partitions, attempt=task.attempt, restore=restore)
        while True:
            while orders.poll():
                try:
                    reader.acknowledge(orders.recv())
                except ShuffleError:
                    pass  # it is of a checkpoint that a later one has replaced here
            try:
                event = reader.poll(0.05)
            except DeadlineExceeded:
                continue
            if event is None:
                break
            if isinstance(event, DataBlock):
                records = list(unpack_records(event.payload))
                if sink is not None:
                    sink.write(b"".join(records))
                seen.update(RECORD.unpack(record) for record in records)
                time.sleep(task.pause / 8)
            elif isinstance(event, Barrier):
                snapshots = {event.checkpoint: Counter(seen)}
            elif isinstance(event, Captured):
                snapshot = (snapshots[event.checkpoint], event.state)
                if event.checkpoint % task.every == 0:
                    store(task.directory / f"{event.checkpoint}" / f"consumer-{task.index}", snapshot)
                orders.send(("done", event.checkpoint))
        store(task.directory / f"result-{task.index}-{task.attempt}", seen)
        orders.send(("finished", task.attempt))
        reader.close()


def run_task(kind: str, task: Task, orders: Connection, log: Path, bugs: tuple[str, ...]) -> None:
    """Main of a task's process; an error ends it with a status of its own."""
    become(log)
    planted.install(bugs)
    try:
        (produce if kind == "producer" else consume)(task, orders)
    except ShuffleError as error:
        print(f"{kind} {task.index} attempt {task.attempt}: {error!r}", flush=True)
        os._exit(DAMAGED if isinstance(error, BlockCorrupt | StorageFailed) else FAILED)
    except (EOFError, OSError) as error:
        print(f"{kind} {task.index} attempt {task.attempt}: the supervisor has left: {error}", flush=True)
        os._exit(LEFT)
    os._exit(0)
