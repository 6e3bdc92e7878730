"""A task in a process of its own: reads a pickled `Task` from standard input, says on standard output how it goes."""

from __future__ import annotations

import pickle
import sys
import time
from dataclasses import dataclass
from typing import Literal

from shuffle_api.errors import StreamBroken
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from shuffle_api.testing import oracle
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.hybrid import HybridShuffle

SAY_EVERY = 200
FIRST = MapAttempt(0, 0)


@dataclass(frozen=True, slots=True)
class Task:
    """Write an attempt, or read partitions.

    `pause` seconds between two words; a writer `waits` for a reader before it begins, and `holds` after so many
    records, until it is killed (-1: never).
    """

    role: Literal["write", "read"]
    options: dict[str, OptionValue]
    handle: ShuffleHandle
    workload: oracle.Workload
    attempt: MapAttempt = FIRST
    partitions: range = range(0)
    pause: float = 0.0
    holds: int = -1
    waits: bool = False


def main() -> None:
    """What is said: `at N` now and then, then `committed`, `done N` with a count of records, or `broken`."""
    task: Task = pickle.load(sys.stdin.buffer)
    with HybridShuffle(task.options) as plugin:
        if task.role == "write":
            write(task, plugin)
        else:
            read(task, plugin)


def write(task: Task, plugin: HybridShuffle) -> None:
    with plugin.writer(task.handle, task.attempt) as writer:
        while task.waits and not writer.statistics().readers:
            time.sleep(0.01)
        for n, (partition, record) in enumerate(task.workload.written(task.attempt)):
            if n == task.holds:
                writer.flush()
                say(f"at {n}")
                time.sleep(3600)
            writer.write(partition, record)
            if n % SAY_EVERY == 0:
                say(f"at {n}")
                time.sleep(task.pause)
        winner = writer.commit()
    say(f"committed {winner.output.attempt}")


def read(task: Task, plugin: HybridShuffle) -> None:
    records: list[oracle.Record] = []
    with plugin.reader(task.handle, task.partitions) as reader:
        try:
            for n, record in enumerate(reader):
                records.append(record)
                if n % SAY_EVERY == 0:
                    say(f"at {n}")
                    time.sleep(task.pause)
        except StreamBroken as error:
            say(f"broken {error.output.attempt if error.output is not None else '?'}")
            return
        found = reader.statistics()
    say(f"done {len(records)} {found.live_blocks} {found.stored_blocks}")
    pickle.dump(records, sys.stdout.buffer)


def say(word: str) -> None:
    sys.stdout.buffer.write(f"{word}\n".encode())
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
