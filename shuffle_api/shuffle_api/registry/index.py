"""What is counted along with each change, so that nobody goes through all shuffles to know it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from shuffle_api.ids import ShuffleId, name_of
from shuffle_api.registry.outputs import Places, ShuffleOutputs, put
from shuffle_api.values import MapOutput


@dataclass(slots=True)
class RunShuffles:
    """The shuffles of one run, in the order of their registration, and what lies where of all of them together."""

    ids: dict[ShuffleId, None] = field(default_factory=dict)
    places: Places = field(default_factory=dict)

    def copy(self) -> RunShuffles:
        return RunShuffles(dict(self.ids), {place: list(amount) for place, amount in self.places.items()})

    @property
    def bytes(self) -> int:
        return sum(amount[1] for amount in self.places.values())


@dataclass(slots=True)
class Index:
    """Lists and sums over the shuffles of a registry. No entry has a count of zero, so that equal registries
    have equal indexes.

    :ivar runs: by run.
    :ivar names: how many shuffles the runs of each application have.
    :ivar workers: the shuffles of which a committed output lies at a worker, each with how many of its places the
        worker is part of.
    :ivar lost: maps whose output is lost and not written again.
    """

    runs: dict[str, RunShuffles] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    workers: dict[str, dict[ShuffleId, int]] = field(default_factory=dict)
    lost: int = 0

    def copy(self) -> Index:
        """An equal one that shares nothing that changes."""
        return Index(
            {app: run.copy() for app, run in self.runs.items()},
            dict(self.names),
            {worker: dict(ids) for worker, ids in self.workers.items()},
            self.lost,
        )

    def registered(self, id: ShuffleId) -> None:
        self.runs.setdefault(id.app, RunShuffles()).ids[id] = None
        name = name_of(id.app)
        self.names[name] = self.names.get(name, 0) + 1

    def removed(self, outputs: ShuffleOutputs) -> None:
        """A shuffle, with all its outputs."""
        id, run = outputs.spec.id, self.runs[outputs.spec.id.app]
        for place, (count, size, *_) in outputs.places.items():
            put(run.places, place, -count, -size)
            self._empty(id, place)
        self.lost -= len(outputs.maps) - len(outputs.winners)
        del run.ids[id]
        if not run.ids:
            del self.runs[id.app]
        name = name_of(id.app)
        self.names[name] -= 1
        if not self.names[name]:
            del self.names[name]

    def committed(self, outputs: ShuffleOutputs, output: MapOutput) -> None:
        """The winner of a map that had none, noted in `outputs`."""
        place = (output.worker,)
        put(self.runs[outputs.spec.id.app].places, place, 1, output.totals.bytes)
        if outputs.places[place][0] == 1:
            self._begun(outputs.spec.id, place)
        if outputs.lost and output.output.map in outputs.lost:
            self.lost -= 1

    def moved(self, outputs: ShuffleOutputs, before: MapOutput, after: MapOutput | None) -> None:
        """A winner lies elsewhere now, or is lost; noted in `outputs`."""
        id, place = outputs.spec.id, before.workers
        put(self.runs[id.app].places, place, -1, -before.totals.bytes)
        if place not in outputs.places:
            self._empty(id, place)
        if after is None:
            self.lost += 1
            return
        put(self.runs[id.app].places, after.workers, 1, after.totals.bytes)
        if outputs.places[after.workers][0] == 1:
            self._begun(id, after.workers)

    def places(self) -> Iterator[tuple[tuple[str, ...], int, int]]:
        """The workers that hold the same outputs of a run, how many these are and how many bytes."""
        return ((place, amount[0], amount[1]) for run in self.runs.values() for place, amount in run.places.items())

    def only_at(self, worker: str, others: Collection[str] | None) -> tuple[int, int]:
        """How many outputs lie at a worker and at none of the `others` (None: nowhere else), and their bytes."""
        found = [
            (count, size)
            for place, count, size in self.places()
            if worker in place and (place == (worker,) if others is None else not any(e in others for e in place))
        ]
        return sum(count for count, _ in found), sum(size for _, size in found)

    def _begun(self, id: ShuffleId, place: tuple[str, ...]) -> None:
        """The first output of a shuffle lies at a place."""
        for worker in place:
            ids = self.workers.setdefault(worker, {})
            ids[id] = ids.get(id, 0) + 1

    def _empty(self, id: ShuffleId, place: tuple[str, ...]) -> None:
        """Nothing of a shuffle lies at a place any more."""
        for worker in place:
            ids = self.workers[worker]
            ids[id] -= 1
            if not ids[id]:
                del ids[id]
            if not ids:
                del self.workers[worker]
