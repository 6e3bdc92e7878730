"""A plugin whose writers hold nothing unread: a write waits until a reader is there. And its exam.

The smallest thing that is bounded, to see that the exam reads while it writes. `test_plugin_tests.py` runs this file as
a session of its own, where what the mode does not promise is skipped.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator

from shuffle_api.buffer import Buffer
from shuffle_api.errors import DeadlineExceeded, Overloaded
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.testing import MemoryShuffle, ShufflePluginTests
from shuffle_api.testing.memory import MemoryReader, MemoryWriter
from shuffle_api.testing.memory_service import MemoryService
from shuffle_api.values import PIPELINED, MapOutput, ShuffleHandle

DEADLINE = 60.0


class Meeting:
    """Where the readers and writers of a shuffle meet."""

    def __init__(self) -> None:
        self.reader_is_there = threading.Event()
        self.committed: set[int] = set()
        self.changed = threading.Condition()


MEETINGS: defaultdict[ShuffleId, Meeting] = defaultdict(Meeting)


class StreamingWriter(MemoryWriter):
    def write(self, partition: int, record: Buffer) -> None:
        self._check_open()
        self._spec.check_partition(partition)
        if not MEETINGS[self._spec.id].reader_is_there.wait(DEADLINE):
            raise Overloaded("no reader came")
        super().write(partition, record)

    def commit(self) -> MapOutput:
        output = super().commit()
        meeting = MEETINGS[self._spec.id]
        with meeting.changed:
            meeting.committed.add(output.output.map)
            meeting.changed.notify_all()
        return output


class StreamingReader(MemoryReader):
    def read_blocks(self) -> Iterator[tuple[int, MapAttempt, bytes, int]]:
        self._check_open()
        self._exchange.check_registered(self._spec.id)
        meeting = MEETINGS[self._spec.id]
        meeting.reader_is_there.set()
        with meeting.changed:
            if not meeting.changed.wait_for(lambda: meeting.committed.issuperset(self._maps), DEADLINE):
                raise DeadlineExceeded("the writers did not finish")
        return super().read_blocks()


class StreamingShuffle(MemoryShuffle):
    mode = PIPELINED

    def writer(self, handle: ShuffleHandle, attempt: MapAttempt) -> MemoryWriter:
        return self._opened(StreamingWriter(MemoryService.find(handle.endpoint), handle.spec, attempt))

    def reader(self, handle: ShuffleHandle, partitions: range, maps: range | None = None) -> MemoryReader:
        return self._opened(StreamingReader(MemoryService.find(handle.endpoint), handle.spec, partitions, maps))


class TestStreamingShuffle(ShufflePluginTests):
    plugin_class = StreamingShuffle
    supports_blocks = True
