"""A task that ends without `close`: python -m tests.shuffle_plugins.pipelined.exit_task ROLE END HANDLE OPTIONS.

It prints "ready" once a block has passed on its connection, and ends when a line comes on standard input.
"""

from __future__ import annotations

import base64
import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from shuffle_api.ids import MapAttempt
from shuffle_plugins.pipelined import PipelinedShuffle, PipelinedWriter

BUG, EXIT = 1, 7  # the codes of a task that fails, and of one that says so

KEPT: list[object] = []  # what a task has open and never closes


def text_of(value: object) -> str:
    """For an argument."""
    return base64.b64encode(pickle.dumps(value)).decode()


def value_of(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))


def written(handle: Any, options: Any) -> PipelinedWriter:
    plugin = PipelinedShuffle(options)
    writer = plugin.writer(handle, MapAttempt(0, 0))
    writer.write(0, b"x")
    writer.flush()
    KEPT.extend((plugin, writer))
    return writer


def read(handle: Any, options: Any) -> Iterator[tuple[int, bytes]]:
    plugin = PipelinedShuffle(options)
    reader = plugin.reader(handle, range(1))
    records = iter(reader)
    next(records)
    KEPT.extend((plugin, reader))
    return records


def produce(handle: Any, options: Any) -> None:
    written(handle, options)


def commit(handle: Any, options: Any) -> None:
    """What is committed and was not read is lost with the process as well."""
    writer = written(handle, {**options, "queue_bytes": 64 << 20, "window": 1 << 20})
    for _ in range(32):
        writer.write(0, bytes(1 << 20))
    writer.commit()


def consume(handle: Any, options: Any) -> None:
    read(handle, options)


def drive(handle: Any, options: Any) -> None:
    """Driver, producer and consumer at once."""
    plugin = PipelinedShuffle({**options, "local": False})
    master = plugin.master("exit-driver")
    own = master.register_shuffle(1, 1)
    writer = plugin.writer(own, MapAttempt(0, 0))
    writer.write(0, b"x")
    records = iter(plugin.reader(own, range(1)))
    next(records)
    KEPT.extend((plugin, master, writer, records))


def fork_and_produce(handle: Any, options: Any) -> None:
    """A forked child ends by itself, and takes nothing of its parent's with it: the parent goes on writing."""
    writer = written(handle, options)
    child = os.fork()
    if not child:
        sys.exit(EXIT)
    signal.alarm(60)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == EXIT
    signal.alarm(0)
    writer.write(0, b"y")
    writer.flush()


ROLES: dict[str, Callable[[Any, Any], None]] = {
    each.__name__: each for each in (produce, commit, consume, drive, fork_and_produce)
}


def end(how: str) -> None:
    if how == "exit":
        sys.exit(EXIT)
    if how == "bug":
        raise RuntimeError("the task has a bug")


def run(role: str, how: str, handle: Any, options: Any, told: Callable[[], object]) -> None:
    ROLES[role](handle, options)
    print("ready", flush=True)  # noqa: T201 - the test waits for it
    told()
    end(how)


def main(role: str, how: str, handle: str, options: str) -> None:
    given = value_of(handle), value_of(options)
    if how != "spawned":
        run(role, how, *given, sys.stdin.readline)
        return
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=run, args=(role, "bug", *given, theirs.recv))
    process.start()
    ours.send(sys.stdin.readline())
    process.join(60)
    sys.exit(99 if process.is_alive() else process.exitcode)


if __name__ == "__main__":
    main(*sys.argv[1:])
