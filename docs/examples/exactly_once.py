"""Each record of a stream once in a sink, whatever is killed: two-phase commit with the checkpoints of `pipelined`.

    python exactly_once.py DIRECTORY                    # into files
    python exactly_once.py DIRECTORY postgresql://...   # into a database

Two sources write to two sinks. A transaction of a sink ends at a barrier: it is *prepared* there, so that it survives
the sink and is not visible yet, and committed when the checkpoint of the barrier is complete. Checkpoints are in
DIRECTORY: run it again after a crash, and it goes on from the last one that is complete. `docs/exactly-once.md` has the
steps one by one.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from flight_shuffle import MapAttempt, PipelinedShuffle, ShuffleHandle
from flight_shuffle.errors import DeadlineExceeded
from flight_shuffle.streaming import Barrier, Captured, DataBlock, ReaderState, WriterState, unpack_records

SOURCES = SINKS = 2
TIMEOUT = 240.0
LOOK_SECONDS = 0.01
EVERY = 10  # records of a source between two barriers


class Sink(Protocol):
    """Transactions, each named by the checkpoint whose barrier ends it. Made in the process of its task."""

    def write(self, records: Sequence[bytes]) -> None:
        """Add records to the transaction that is open."""

    def prepare(self, checkpoint: int) -> None:
        """End the open transaction: it survives this process, and is not visible yet (Flink: pre-commit)."""

    def commit(self, checkpoint: int) -> None:
        """Make it visible. Idempotent."""

    def recover(self, checkpoint: int) -> None:
        """A new process: commit what was prepared up to this checkpoint, abort all else."""


class Checkpoints:
    """The states of the tasks by checkpoint, as files. A checkpoint is complete when its file `complete` is there."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def save(self, checkpoint: int, task: str, state: object) -> None:
        path = self._directory / str(checkpoint) / task
        path.parent.mkdir(exist_ok=True)
        with path.with_suffix(".new").open("wb") as file:
            file.write(pickle.dumps(state))
            file.flush()
            os.fsync(file.fileno())
        path.with_suffix(".new").replace(path)
        sync_directory(path.parent)

    def load(self, checkpoint: int, task: str) -> Any:
        return pickle.loads((self._directory / str(checkpoint) / task).read_bytes()) if checkpoint >= 0 else None

    def tasks(self, checkpoint: int) -> set[str]:
        """Those that have saved their states."""
        directory = self._directory / str(checkpoint)
        return {path.name for path in directory.iterdir() if not path.suffix} if directory.exists() else set()

    def complete(self, checkpoint: int) -> None:
        """All have saved theirs. Nobody goes back behind it."""
        self.save(checkpoint, "complete", None)
        shutil.rmtree(self._directory / str(checkpoint - 1), ignore_errors=True)

    def latest(self) -> int:
        """The last that is complete; -1: none is."""
        return max((int(path.parent.name) for path in self._directory.glob("*/complete")), default=-1)

    def wait(self, checkpoint: int) -> None:
        """Until it is complete."""
        deadline = time.monotonic() + TIMEOUT
        while self.latest() < checkpoint:
            if time.monotonic() > deadline:
                raise TimeoutError(f"checkpoint {checkpoint} is not complete after {TIMEOUT:g} s")
            time.sleep(LOOK_SECONDS)

    def discard(self, task: str, after: int) -> None:
        """The states that a task saved for later checkpoints do not count: it will save them again."""
        for path in self._directory.glob(f"*/{task}"):
            if int(path.parent.name) > after:
                path.unlink()


def produce(plugin: PipelinedShuffle, handle: ShuffleHandle, map: int, checkpoints: Checkpoints, records: int) -> None:
    """A source: writes the numbers below `records`, with a barrier when the last checkpoint is complete."""
    checkpoint = checkpoints.latest()
    restored: WriterState | None = checkpoints.load(checkpoint, f"source-{map}")
    number = restored.records if restored is not None else 0
    with plugin.writer(handle, MapAttempt(map, 0), restore=restored) as writer:
        while number < records:
            end = min(number + EVERY, records)
            for each in range(number, end):
                writer.write(each % SINKS, b"%d/%d" % (map, each))
            number = end
            checkpoints.wait(checkpoint)  # one at a time
            checkpoint += 1
            writer.emit(Barrier(checkpoint))  # the last one ends the last transaction
            checkpoints.save(checkpoint, f"source-{map}", writer.state(checkpoint, TIMEOUT))
        writer.commit()
        writer.drain(TIMEOUT)


def consume(
    handle: ShuffleHandle,
    partition: int,
    attempt: int,
    restore: int,
    checkpoints: Checkpoints,
    open_sink: Callable[[int, int], Sink],
) -> None:
    """The task of a sink, in a process of its own. It goes on from the complete checkpoint `restore`."""
    task = f"sink-{partition}"
    sink = open_sink(partition, attempt)
    sink.recover(restore)
    state: ReaderState | None = checkpoints.load(restore, task)
    options = {"timeout": TIMEOUT}
    with (
        PipelinedShuffle(options) as plugin,
        plugin.reader(handle, range(partition, partition + 1), attempt=attempt, restore=state) as reader,
    ):
        committed = captured = restore
        ended = False
        while not ended or committed < captured:
            try:
                event = reader.poll(LOOK_SECONDS)
                ended = event is None
            except DeadlineExceeded:
                event = None
            if ended:
                time.sleep(LOOK_SECONDS)
            if (driver := multiprocessing.parent_process()) is not None and not driver.is_alive():
                return  # the next one starts a task in the place of this one
            if isinstance(event, DataBlock):
                sink.write([bytes(record) for record in unpack_records(event.payload)])
            elif isinstance(event, Captured):
                sink.prepare(event.checkpoint)
                checkpoints.save(event.checkpoint, task, event.state)
                captured = event.checkpoint
            complete = checkpoints.latest()
            if complete > committed:
                sink.commit(complete)
                reader.acknowledge(complete)
                committed = complete


def run(directory: Path, open_sink: Callable[[int, int], Sink], records: int = 200) -> int:
    """The driver: registers the shuffle, starts the tasks, completes checkpoints, and starts sinks again that died.

    Returns how often it did that.
    """
    checkpoints = Checkpoints(directory)
    tasks = {*(f"source-{n}" for n in range(SOURCES)), *(f"sink-{n}" for n in range(SINKS))}
    for task in tasks:
        checkpoints.discard(task, checkpoints.latest())
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["flight_shuffle", "shuffle_plugins.pipelined", "psycopg"])
    with PipelinedShuffle({"guarantee": "exactly_once", "timeout": TIMEOUT}) as plugin, plugin.master("sink") as master:
        handle = master.register_shuffle(partitions=SINKS, maps=SOURCES)

        def start(partition: int, attempt: int) -> Any:
            checkpoints.discard(f"sink-{partition}", checkpoints.latest())
            arguments = (handle, partition, attempt, checkpoints.latest(), checkpoints, open_sink)
            process = processes.Process(target=consume, args=arguments)
            process.start()
            return process

        sinks = [start(partition, 0) for partition in range(SINKS)]
        attempts = [0] * SINKS
        sources = [
            threading.Thread(target=produce, args=(plugin, handle, map, checkpoints, records)) for map in range(SOURCES)
        ]
        for source in sources:
            source.start()
        while any(sink.exitcode != 0 for sink in sinks):
            following = checkpoints.latest() + 1
            if checkpoints.tasks(following) >= tasks:
                checkpoints.complete(following)
            for partition, sink in enumerate(sinks):
                if (sink.exitcode or 0) > 0:
                    raise RuntimeError(f"the task of sink {partition} has failed: see its error above")
                if sink.exitcode is not None and sink.exitcode < 0:  # killed
                    attempts[partition] += 1
                    sinks[partition] = start(partition, attempts[partition])
            time.sleep(LOOK_SECONDS)
        for source in sources:
            source.join()
    return sum(attempts)


def sync_directory(directory: Path) -> None:
    """The names in it survive a crash of the machine."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    from functools import partial

    from file_sink import FileSink, records_in
    from postgres_sink import PostgresSink

    place = Path(sys.argv[1])
    if len(sys.argv) > 2:
        run(place / "checkpoints", partial(PostgresSink, sys.argv[2]))
    else:
        run(place / "checkpoints", partial(FileSink, place / "records"))
        print(len(records_in(place / "records")), "records")
