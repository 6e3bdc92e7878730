"""What is counted along with each change, so that nobody goes through all shuffles to know it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from shuffle_api.ids import ShuffleId, name_of
from shuffle_api.registry.outputs import ShuffleOutputs
from shuffle_api.registry.places import Place
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

    :ivar shuffles: the shuffles of its outputs, each with how many of its places the worker is part of.
    :ivar places: how many outputs, and how many bytes, lie at this worker alone, and with each other one.
    """

    shuffles: dict[ShuffleId, int] = field(default_factory=dict)
    places: dict[Place, list[int]] = field(default_factory=dict)

    def copy(self) -> WorkerOutputs:
        return WorkerOutputs(dict(self.shuffles), {place: list(amount) for place, amount in self.places.items()})


@dataclass(slots=True)
class Index:
    """Lists and sums over the shuffles of a registry. No entry has a count of zero, so that equal registries
    have equal indexes.

    :ivar runs: by run.
    :ivar names: how many shuffles the runs of each application have.
    :ivar workers: what lies at each worker.
    :ivar committed: maps with a committed output.
    :ivar bytes: payload of the committed outputs.
    :ivar lost: maps whose output is lost and not written again.
    """

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
            index.registered(outputs.spec.id)
            for place, held in outputs.places.at.items():
                index._add(outputs, place, len(held.maps), held.bytes)
            index.lost += len(outputs.maps) - len(outputs.winners)
        return index

    def copy(self) -> Index:
        """An equal one that shares nothing that changes."""
        return replace(
            self,
            runs={app: run.copy() for app, run in self.runs.items()},
            names=dict(self.names),
            workers={worker: outputs.copy() for worker, outputs in self.workers.items()},
        )

    def registered(self, id: ShuffleId) -> None:
        self.runs.setdefault(id.app, RunShuffles()).ids[id] = None
        name = name_of(id.app)
        self.names[name] = self.names.get(name, 0) + 1

    def removed(self, outputs: ShuffleOutputs) -> None:
        """A shuffle, with all its outputs."""
        id, run = outputs.spec.id, self.runs[outputs.spec.id.app]
        for place, held in outputs.places.at.items():
            self._take(place, len(held.maps), held.bytes)
            self._empty(id, place)
        self.committed -= len(outputs.winners)
        self.bytes -= outputs.sums[0]
        self.lost -= len(outputs.maps) - len(outputs.winners)
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
        if place not in outputs.places.at:
            self._empty(id, place)
        if after is None:
            self.lost += 1
        else:
            self._add(outputs, after.workers, 1, size)

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
        first = len(outputs.places.at[place].maps) == count
        self.committed += count
        self.bytes += size
        self.runs[id.app].bytes += size
        for worker in place:
            found = self.workers.get(worker)
            if found is None:
                found = self.workers[worker] = WorkerOutputs()
            if first:
                found.shuffles[id] = found.shuffles.get(id, 0) + 1
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

    def _empty(self, id: ShuffleId, place: Place) -> None:
        """Nothing of a shuffle lies at a place any more."""
        for worker in place:
            found = self.workers[worker]
            found.shuffles[id] -= 1
            if not found.shuffles[id]:
                del found.shuffles[id]
            if not found.shuffles:
                del self.workers[worker]
