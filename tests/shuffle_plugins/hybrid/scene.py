"""What tests of the plugin share: a shuffle with its tasks, and helpers to read it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from shuffle_plugins.hybrid import HybridReader, HybridShuffle, HybridWriter

WAIT = 120.0
"""Seconds that anything may take here."""


class Scene:
    """A registered shuffle of one plugin, which plays driver and tasks."""

    def __init__(self, partitions: int, maps: int, options: dict[str, OptionValue]) -> None:
        self.plugin = HybridShuffle(options)
        self.master = self.plugin.master(f"scene-{uuid.uuid4().hex}")
        self.handle = self.master.register_shuffle(partitions, maps)

    def writer(self, map: int = 0, attempt: int = 0) -> HybridWriter:
        return self.plugin.writer(self.handle, MapAttempt(map, attempt))

    def reader(self, partitions: range | None = None, maps: range | None = None) -> HybridReader:
        wanted = range(self.handle.spec.partitions) if partitions is None else partitions
        return self.plugin.reader(self.handle, wanted, maps)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.plugin.close()


def numbers(start: int, stop: int) -> list[tuple[int, bytes]]:
    """Records of partition 0 that are numbers."""
    return [(0, b"%d" % number) for number in range(start, stop)]


def write(writer: HybridWriter, start: int, stop: int) -> None:
    for partition, record in numbers(start, stop):
        writer.write(partition, record)


def taken(records: Iterator[tuple[int, bytes]], count: int) -> list[tuple[int, bytes]]:
    """The next so many."""
    return [next(records) for _ in range(count)]


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.01)
