"""A driver whose producer and consumer are processes of their own; it says what became of them."""

from __future__ import annotations

import multiprocessing
import sys
import time
from typing import Any

from shuffle_api.errors import ShuffleError
from shuffle_api.ids import MapAttempt
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.pipelined import PipelinedShuffle

OPTIONS = {"keepalive": "0.5", "guarantee": "at_least_once"}
RECORDS = 800


def produce(handle: ShuffleHandle, said: Any) -> None:
    try:
        with PipelinedShuffle(OPTIONS) as plugin, plugin.writer(handle, MapAttempt(0, 0)) as writer:
            for number in range(RECORDS):
                writer.write(0, b"%d" % number)
                time.sleep(0.01)
            writer.commit()
            writer.drain(30)
        said.put("produced")
    except ShuffleError as error:
        said.put(f"producer: {error}")


def consume(handle: ShuffleHandle, said: Any) -> None:
    found: list[int] = []
    try:
        with PipelinedShuffle(OPTIONS) as plugin, plugin.reader(handle, range(1)) as reader:
            for _, record in reader:
                if not found:
                    said.put("began")
                found.append(int(record))
        said.put(f"consumed {found == list(range(RECORDS))}")
    except ShuffleError as error:
        said.put(f"consumer: {error}")


def main() -> None:
    context = multiprocessing.get_context("spawn")
    said = context.Queue()
    with PipelinedShuffle(OPTIONS) as plugin, plugin.master("app") as master:
        handle = master.register_shuffle(partitions=1, maps=1)
        tasks = [context.Process(target=task, args=(handle, said)) for task in (produce, consume)]
        for task in tasks:
            task.start()
        for _ in range(3):
            sys.stdout.write(f"{said.get(timeout=120)}\n")
            sys.stdout.flush()
        for task in tasks:
            task.join(30)


if __name__ == "__main__":
    main()
