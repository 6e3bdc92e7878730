"""What tests of the plugin share: a shuffle with its tasks, and helpers to read it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from shuffle_api.records import unpack_records
from shuffle_api.streaming import ReaderState, WriterState
from shuffle_plugins.pipelined import DataBlock, PipelinedReader, PipelinedShuffle, PipelinedWriter
from shuffle_plugins.pipelined.reader import Event

WAIT = 120.0


class Scene:
    """A registered shuffle of one plugin, which plays driver and tasks."""

    def __init__(self, partitions: int, maps: int, options: dict[str, OptionValue]) -> None:
        self.plugin, self.local = PipelinedShuffle(options), options["local"]
        self.master = self.plugin.master(f"scene-{uuid.uuid4().hex}")
        self.handle = self.master.register_shuffle(partitions, maps)

    def writer(self, map: int = 0, attempt: int = 0, restore: WriterState | None = None) -> PipelinedWriter:
        return self.plugin.writer(self.handle, MapAttempt(map, attempt), restore=restore)

    def reader(
        self, partitions: range | None = None, attempt: int = 0, restore: ReaderState | None = None
    ) -> PipelinedReader:
        wanted = range(self.handle.spec.partitions) if partitions is None else partitions
        return self.plugin.reader(self.handle, wanted, attempt=attempt, restore=restore)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.plugin.close()


def records_of(events: Iterable[Event]) -> list[bytes]:
    """The records of all blocks among the events."""
    return [record for event in events if isinstance(event, DataBlock) for record in unpack_records(event.payload)]


def until(reader: PipelinedReader, kind: type[object]) -> list[Event]:
    """Events up to the first of a kind."""
    found: list[Event] = []
    while True:
        event = reader.poll(WAIT)
        assert event is not None, f"ended before a {kind.__name__}: {found}"
        found.append(event)
        if isinstance(event, kind):
            return found


def rest(reader: PipelinedReader) -> list[Event]:
    """All events to the end."""
    return list(reader.events())


def data(*numbers: int) -> list[bytes]:
    """Records that are numbers."""
    return [b"%d" % number for number in numbers]


def write(writer: PipelinedWriter, numbers: Iterable[int], partition: int = 0) -> None:
    for number in numbers:
        writer.write(partition, b"%d" % number)
