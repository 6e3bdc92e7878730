"""What is counted along with each change, so that nobody goes through all shuffles to know it."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from shuffle_api.ids import ShuffleId, name_of
from shuffle_api.registry.output_rows import Place
from shuffle_api.registry.outputs import ShuffleOutputs
from shuffle_api.values import MapOutput


@dataclass(slots=True)
class RunShuffles:
    """The shuffles of one run, in the order of their registration, and the payload of their committed outputs."""

    ids: dict[ShuffleId, None] = field(default_factory=dict)
    bytes: int = 0

    def copy(self) -> RunShuffles:
        return RunShuffles(dict(self.ids), self.bytes)


@dataclass(slots=True)
class WorkerOutputs:
    """What lies at one worker.

    :ivar shuffles: the numbers of the shuffles of its outputs, ascending.
    :ivar places: how many outputs, and how many bytes, lie at this worker alone, and with each other one.
    """

    shuffles: array[int] = field(default_factory=lambda: array("q"))
    places: dict[Place, list[int]] = field(default_factory=dict)

    def copy(self) -> WorkerOutputs:
        return WorkerOutputs(self.shuffles[:], {place: list(amount) for place, amount in self.places.items()})

    def add(self, number: int) -> None:
        """Something of a shuffle lies here."""
        shuffles = self.shuffles
        if not shuffles or number > shuffles[-1]:
            shuffles.append(number)
        elif shuffles[at := bisect_left(shuffles, number)] != number:
            shuffles.insert(at, number)

    def take(self, number: int) -> None:
        """Nothing of a shuffle, of which something did, lies here any more."""
        del self.shuffles[bisect_left(self.shuffles, number)]


@dataclass(slots=True, eq=False)
class Index:
    """Lists and sums over the shuffles of a registry. No entry has a count of zero, so that equal registries
    have equal indexes.

    :ivar shuffles: by number, in the order of their registration.
    :ivar runs: by run.
    :ivar names: how many shuffles the runs of each application have.
    :ivar workers: what lies at each worker.
    :ivar committed: maps with a committed output.
    :ivar bytes: payload of the committed outputs.
    :ivar lost: maps whose output is lost and not written again.
    """

    shuffles: dict[int, ShuffleId] = field(default_factory=dict)
    runs: dict[str, RunShuffles] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    workers: dict[str, WorkerOutputs] = field(default_factory=dict)
    committed: int = 0
    bytes: int = 0
    lost: int = 0

    @classmethod
    def of(cls, shuffles: Iterable[ShuffleOutputs]) -> Index:
        """The index of these shuffles, which were registered in this order."""
        index = cls()
        for outputs in shuffles:
            index.registered(outputs)
            for place, (count, size) in outputs.winners.amounts().items():
                index._add(outputs, place, count, size)
            index.lost += outputs.winners.missing
        return index

    def copy(self) -> Index:
        """An equal one that shares nothing that changes."""
        return replace(
            self,
            shuffles=dict(self.shuffles),
            runs={app: run.copy() for app, run in self.runs.items()},
            names=dict(self.names),
            workers={worker: outputs.copy() for worker, outputs in self.workers.items()},
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and self._lists() == other._lists()

    __hash__ = None  # type: ignore[assignment]

    def registered(self, outputs: ShuffleOutputs) -> None:
        id = outputs.spec.id
        self.shuffles[outputs.number] = id
        self.runs.setdefault(id.app, RunShuffles()).ids[id] = None
        name = name_of(id.app)
        self.names[name] = self.names.get(name, 0) + 1

    def removed(self, outputs: ShuffleOutputs) -> None:
        """A shuffle, with all its outputs."""
        id, run = outputs.spec.id, self.runs[outputs.spec.id.app]
        for place, (count, size) in outputs.winners.amounts().items():
            self._take(place, count, size)
        for worker in outputs.winners.workers():
            self._empty(outputs, worker)
        del self.shuffles[outputs.number]
        self.committed -= len(outputs.winners)
        self.bytes -= outputs.sums[0]
        self.lost -= outputs.winners.missing
        run.bytes -= outputs.sums[0]
        del run.ids[id]
        if not run.ids:
            del self.runs[id.app]
        name = name_of(id.app)
        self.names[name] -= 1
        if not self.names[name]:
            del self.names[name]

    def committed_first(self, outputs: ShuffleOutputs, output: MapOutput) -> None:
        """The winner of a map that had none, noted in `outputs`."""
        self._add(outputs, (output.worker,), 1, output.totals.bytes)
        if outputs.lost and output.output.map in outputs.lost:
            self.lost -= 1

    def moved(self, outputs: ShuffleOutputs, before: MapOutput, after: MapOutput | None) -> None:
        """A winner lies elsewhere now, or is lost; noted in `outputs`."""
        id, place, size = outputs.spec.id, before.workers, before.totals.bytes
        self.committed -= 1
        self.bytes -= size
        self.runs[id.app].bytes -= size
        self._take(place, 1, size)
        for worker in place:
            if not outputs.count_at(worker):
                self._empty(outputs, worker)
        if after is None:
            self.lost += 1
        else:
            self._add(outputs, after.workers, 1, size)

    def shuffles_at(self, worker: str) -> list[ShuffleId]:
        """The shuffles of which an output lies at a worker, in the order of their registration."""
        found = self.workers.get(worker)
        return [] if found is None else [self.shuffles[number] for number in found.shuffles]

    def only_at(self, worker: str, others: Collection[str] | None) -> tuple[int, int]:
        """How many outputs lie at a worker and at none of the `others` (None: nowhere else), and their bytes."""
        found = self.workers.get(worker)
        if found is None:
            return 0, 0
        if others is None:
            count, size = found.places.get((worker,), (0, 0))
            return count, size
        amounts = [amount for place, amount in found.places.items() if not any(each in others for each in place)]
        return sum(count for count, _ in amounts), sum(size for _, size in amounts)

    def _add(self, outputs: ShuffleOutputs, place: Place, count: int, size: int) -> None:
        """So many outputs and bytes more lie at a place; `outputs` has them already."""
        id = outputs.spec.id
        self.committed += count
        self.bytes += size
        self.runs[id.app].bytes += size
        for worker in place:
            found = self.workers.get(worker)
            if found is None:
                found = self.workers[worker] = WorkerOutputs()
            found.add(outputs.number)
            amount = found.places.get(place)
            if amount is None:
                found.places[place] = [count, size]
            else:
                amount[0] += count
                amount[1] += size

    def _take(self, place: Place, count: int, size: int) -> None:
        """So many outputs and bytes lie at a place no more."""
        for worker in place:
            places = self.workers[worker].places
            amount = places[place]
            amount[0] -= count
            amount[1] -= size
            if not amount[0]:
                del places[place]

    def _empty(self, outputs: ShuffleOutputs, worker: str) -> None:
        """Nothing of a shuffle lies at a worker any more."""
        found = self.workers[worker]
        found.take(outputs.number)
        if not found.shuffles:
            del self.workers[worker]

    def _lists(self) -> tuple[object, ...]:
        workers = {worker: (set(self.shuffles_at(worker)), found.places) for worker, found in self.workers.items()}
        return self.runs, self.names, workers, self.committed, self.bytes, self.lost
