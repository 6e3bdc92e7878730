"""Compacted files without bytes: what the product's compaction code makes, opens and deletes here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import Totals
from shuffle_server.store.compacted_file import COMPACTED_ROW, NUMBER
from shuffle_server.store.compacted_writer import CompactionInput, slice_bytes
from shuffle_server.store.compaction_model import CompactionModel
from shuffle_server.store.device import Device
from shuffle_server.store.directory import WriteLoad
from shuffle_server.store.format import INDEX_ROW, Description
from tests.model.parameters import Job

Path = tuple[ShuffleId, MapAttempt]


@dataclass(frozen=True, slots=True)
class Shape:
    """What every map output of a shuffle is like."""

    id: ShuffleId
    job: Job
    index: np.ndarray  # dtype INDEX_ROW
    totals: Totals

    @classmethod
    def of(cls, id: ShuffleId, job: Job) -> Shape:
        index = np.zeros(job.partitions, INDEX_ROW)
        index["partition"] = np.arange(job.partitions)
        index["length"] = job.block
        index["offset"] = np.arange(job.partitions) * job.block
        return cls(id, job, index, Totals(job.partitions, job.output_bytes, job.output_bytes, job.partitions))

    @property
    def index_bytes(self) -> int:
        return int(self.index.nbytes)

    def description(self, output: MapAttempt) -> Description:
        id = self.id
        return Description(
            id.app, id.shuffle, id.generation, output.map, output.attempt, self.job.partitions, "none", self.totals
        )


class SimulatedWriteLoad(WriteLoad):
    """The map outputs that are being written to a simulated disk: how many is for the machines to say."""

    def __init__(self, pushes: Callable[[], int]) -> None:
        self._pushes = pushes
        super().__init__()

    @property
    def count(self) -> int:
        return self._pushes()

    @count.setter
    def count(self, count: int) -> None:
        """Is counted there."""


class SimulatedDirectory:
    """A data directory as the compaction code sees it.

    :param deleted: called with the name of each file that is deleted.
    :param compacted: called with each compacted file that is written.
    :param pushes: how many map outputs are being written there.
    """

    def __init__(
        self,
        device: Device,
        deleted: Callable[[Path], None],
        compacted: Callable[[SimulatedCompactedFile], None],
        pushes: Callable[[], int],
    ) -> None:
        self.device, self._deleted, self.entered = device, deleted, compacted
        self.incoming = SimulatedWriteLoad(pushes)
        self.compacted: set[SimulatedCompactedFile] = set()
        self.paths = SimpleNamespace(committed_text=lambda shuffle, output: (shuffle, output))
        self.caretaker = SimpleNamespace(later=lambda task: task())

    def unlink(self, path: Path) -> bool:
        self._deleted(path)
        return True


class SimulatedCompactedFile:
    """The blocks of many outputs of a shuffle by partition; those of one partition are read at once."""

    def __init__(self, home: SimulatedDirectory, shuffle: ShuffleId, sources: Sequence[CompactionInput]) -> None:
        self.home, self.shuffle = home, shuffle
        self.inputs = [source.held.output for source in sources]
        self._gone = [False] * len(sources)
        self._rows = sum(len(source.file.index) for source in sources)
        self._partitions = len(sources[0].file.index)
        self.payload = sum(source.held.bytes for source in sources)
        self.bytes = self.payload + self._rows * (COMPACTED_ROW.itemsize + INDEX_ROW.itemsize + NUMBER.itemsize)
        home.compacted.add(self)

    def __len__(self) -> int:
        return len(self.inputs)

    def blocks(self, first: int, end: int) -> int:
        return self._rows * (end - first) // self._partitions

    def drop(self, number: int) -> bool:
        self._gone[number] = True
        if all(self._gone):
            self.home.compacted.discard(self)
        return True


def write_compacted(
    home: Any,
    shuffle: ShuffleId,
    sources: Sequence[CompactionInput],
    written: Callable[[int], None] = lambda size: None,
    *,
    sync: bool = False,
) -> SimulatedCompactedFile:
    """In the place of the product's function, which copies bytes."""
    file = SimulatedCompactedFile(home, shuffle, sources)
    step = slice_bytes(file.payload)
    for at in range(0, file.payload, step):
        written(min(step, file.payload - at))
    home.entered(file)
    return file


class SharedIndexModel(CompactionModel):
    """Decides as the product does, once for outputs that have one index: so many equal ones pay if one does."""

    def __init__(self, committed: Callable[[], int], options: Any) -> None:
        self._paid: dict[int, bool] = {}
        super().__init__(committed, options)

    def pays(self, device: Device, indexes: Sequence[np.ndarray]) -> bool:
        if any(each is not indexes[0] for each in indexes):
            return super().pays(device, indexes)
        key = id(indexes[0])
        if key not in self._paid:
            self._paid[key] = super().pays(device, indexes[:1])
        return self._paid[key]
