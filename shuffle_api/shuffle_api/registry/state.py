"""The registry's state, the operations that change it, and the questions it answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar, Literal

from shuffle_api.errors import InvalidArgument, ShuffleExists, StaleEpoch, UnknownShuffle
from shuffle_api.ids import ShuffleId
from shuffle_api.registry.apps import AppRecord, Apps
from shuffle_api.registry.encoding import Decoder, encode
from shuffle_api.registry.events import (
    AppRemoved,
    Event,
    LostOutput,
    MapOutputCommitted,
    OutputMoved,
    ShuffleRemoved,
    WorkerLost,
)
from shuffle_api.registry.index import Index, RunShuffles
from shuffle_api.registry.operations import (
    BeginJournal,
    CommitMapOutput,
    ExpireApps,
    LoseMapOutput,
    LoseWorker,
    LoseWorkerOutputs,
    Operation,
    RegisterApp,
    RegisterShuffle,
    RegisterWorker,
    UnregisterApp,
    UnregisterShuffle,
)
from shuffle_api.registry.output_rows import OutputPage, OutputRows, RegistryNumbers
from shuffle_api.registry.outputs import ShuffleOutputs
from shuffle_api.values import MapOutput, ShuffleSpec, Totals, WorkerInfo


@dataclass(frozen=True, slots=True)
class RegistryFigures:
    """A registry in numbers."""

    apps: int  # registered, not expired
    shuffles: int
    most_shuffles: int  # of one application, all its runs together
    workers: int
    committed: int  # maps with a committed output
    lost: int  # maps whose output is lost and not written again
    bytes: int  # payload of the committed outputs


@dataclass(frozen=True, slots=True)
class ShuffleSummary:
    """A shuffle in numbers."""

    spec: ShuffleSpec
    committed: int  # maps with a committed output
    totals: Totals  # of these outputs, without a digest
    degraded: int  # of them: at fewer workers than the shuffle asks for


class Registry:
    """Applications, shuffles, map outputs and workers. Not thread-safe: the caller holds a lock or is alone."""

    def __init__(self) -> None:
        self.journal = ""  # the id of its journal; empty until it has one
        self._apps = Apps()
        self._shuffles: dict[ShuffleId, ShuffleOutputs] = {}
        self._current: dict[ShuffleId, ShuffleId] = {}  # by `ShuffleId.current`: a number has one generation at a time
        self._workers: dict[str, WorkerInfo] = {}
        self._counted: Index | None = None  # kept up from the first question on: what is replayed asks none
        self._owner = object()  # of those shuffles that no copy shares
        self._numbers = RegistryNumbers()  # as those of all copies

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Registry):
            return NotImplemented
        mine, others = (
            {**each.__dict__, "_counted": each.index(), "_owner": None, "_numbers": None} for each in (self, other)
        )
        return mine == others

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> Registry:
        """An equal registry that stays as it is when this one changes; for drawing a snapshot while work goes on.

        A shuffle is shared until one of the two changes it: only tables of references are copied here.
        """
        copy = Registry()
        copy.journal = self.journal
        copy._apps, copy._shuffles, copy._workers = self._apps.clone(), dict(self._shuffles), dict(self._workers)
        copy._current, copy._numbers = dict(self._current), self._numbers
        copy._counted = None if self._counted is None else self._counted.copy()
        self._owner = object()
        return copy

    def share(self, id: ShuffleId, other: Registry) -> bool:
        """Have two registries keep the outputs of a shuffle once, until one of them changes these; False: nothing to
        do. Only where they are the same, and all maps have committed: what changes would be copied again at once."""
        mine, others = self._shuffles.get(id), other._shuffles.get(id)
        if mine is None or others is None or mine.winners is others.winners or len(mine.winners) < mine.spec.maps:
            return False
        if not mine.winners.is_copy_of(others.winners):
            return False
        mine.winners = others.winners
        mine.owner = others.owner = None
        return True

    # ------------------------------------------------------------------------------------ change

    def apply(self, operation: Operation) -> tuple[Event, ...]:
        """Make one change and say what it brought about. When it raises, nothing has changed.

        :raises AppExists: RegisterApp: another instance has this id.
        :raises AppExpired: the operation names a shuffle of an application that expired.
        :raises UnknownApp: RegisterShuffle: no such application.
        :raises ShuffleExists: RegisterShuffle: the id is taken by a shuffle with other properties.
        :raises UnknownShuffle: CommitMapOutput, LoseMapOutput, LoseWorkerOutputs: no such shuffle.
        :raises StaleEpoch: CommitMapOutput: the worker is not registered.
        :raises InvalidArgument: CommitMapOutput: it names several workers.
        :raises AttemptSuperseded: CommitMapOutput: another attempt has won; `.output` and `.worker` name it.
        :raises CommitMismatch: CommitMapOutput: this attempt has won with other totals.
        :raises MapOutputLost: CommitMapOutput: this attempt had won and was lost.
        """
        return self._HANDLERS[type(operation)](self, operation)

    def recommit(self, id: ShuffleId, worker: str, map: int, attempt: int, totals: Sequence[int]) -> bool:
        """Apply the commit of a map that nobody has committed, in a fifth of the time: for a log that is replayed.
        False, and nothing has changed, where that is not all: then `apply` it."""
        outputs = self._shuffles.get(id)
        if outputs is None or outputs.owner is not self._owner or worker not in self._workers or self._counted:
            return False
        return outputs.recommit(map, attempt, self._numbers.of(worker), totals)

    def _begin_journal(self, op: BeginJournal) -> tuple[Event, ...]:
        self.journal = self.journal or op.id
        return ()

    def _register_app(self, op: RegisterApp) -> tuple[Event, ...]:
        self._apps.register(AppRecord(op.app, op.instance, op.name, op.only))
        return ()

    def _unregister_app(self, op: UnregisterApp) -> tuple[Event, ...]:
        gone = self._apps.end(op.app)
        return () if gone is None else self._removed(op.app, "unregistered")

    def _expire_apps(self, op: ExpireApps) -> tuple[Event, ...]:
        return tuple(event for app in self._apps.expire(op.apps) for event in self._removed(app, "expired"))

    def _register_shuffle(self, op: RegisterShuffle) -> tuple[Event, ...]:
        id = op.spec.id
        self._apps.get(id.app)
        current = self._current.get(id.current())
        if current is None:
            numbers, owner = self._numbers, self._owner
            outputs = ShuffleOutputs(op.spec, OutputRows(numbers), number=next(numbers.shuffles), owner=owner)
            self._shuffles[id], self._current[id.current()] = outputs, id
            if self._counted is not None:
                self._counted.registered(outputs)
            return ()
        present = self._shuffles[current].spec
        if replace(op.spec, id=current) != present:
            raise ShuffleExists(f"the shuffle is registered as {present}, not {op.spec}", shuffle=id)
        return ()

    def _unregister_shuffle(self, op: UnregisterShuffle) -> tuple[Event, ...]:
        id = self._find(op.id)
        return () if id is None else (self._remove(id),)

    def _commit_map_output(self, op: CommitMapOutput) -> tuple[Event, ...]:
        outputs = self._shuffles.get(op.shuffle)  # mostly that is all: commits are nearly all that there is
        if outputs is None or outputs.owner is not self._owner:
            outputs = self._own(op.shuffle)
        # A commit by a worker that was given up would make outputs visible that nobody can reach.
        if op.output.worker not in self._workers:
            raise StaleEpoch(
                f"worker {op.output.worker!r} is not registered",
                remedy="register the worker before it commits",
                worker=op.output.worker,
                shuffle=op.shuffle,
                output=op.output.output,
            )
        if op.output.copies:
            raise InvalidArgument(
                f"a commit at several workers at once: {', '.join(op.output.workers)}",
                remedy="commit the output at each of them",
                shuffle=op.shuffle,
                output=op.output.output,
            )
        event = outputs.commit(op.output)
        if event is None:
            return ()
        if self._counted is None:
            return (event,)
        if isinstance(event, MapOutputCommitted):
            self._counted.committed_first(outputs, op.output)
        else:
            self._counted.moved(outputs, _before_copy(event.output), event.output)
        return (event,)

    def _lose_map_output(self, op: LoseMapOutput) -> tuple[Event, ...]:
        outputs = self._own(op.shuffle)
        found = outputs.lose(op.output, op.reason, op.worker)
        return () if found is None else (self._lost(outputs, *found),)

    def _lose_worker_outputs(self, op: LoseWorkerOutputs) -> tuple[Event, ...]:
        outputs = self._own(op.shuffle)
        held = outputs.winners.held_of(op.worker, op.first, op.end)
        return tuple(self._lose_held(outputs, held, op.reason, op.worker))

    def _lose_held(self, outputs: ShuffleOutputs, held: list[MapOutput], reason: str, worker: str) -> Iterator[Event]:
        """Of these winners, which lie at the worker, it holds none any more."""
        for each in held:
            yield self._lost(outputs, each, outputs.lose_winner(each, reason, worker))

    def _lost(self, outputs: ShuffleOutputs, before: MapOutput, event: LostOutput | OutputMoved) -> Event:
        if self._counted is not None:
            self._counted.moved(outputs, before, event.output if isinstance(event, OutputMoved) else None)
        return event

    def _register_worker(self, op: RegisterWorker) -> tuple[Event, ...]:
        self._workers[op.info.id] = op.info
        return ()

    def _lose_worker(self, op: LoseWorker) -> tuple[Event, ...]:
        info = self._workers.pop(op.worker, None)
        if info is None:
            return ()
        events: list[Event] = [WorkerLost(info, op.reason)]
        for id in self.shuffles_at(op.worker):
            outputs = self._own(id)
            events += self._lose_held(outputs, outputs.held_by(op.worker), op.reason, op.worker)
        return tuple(events)

    def _removed(self, app: str, reason: Literal["unregistered", "expired"]) -> tuple[Event, ...]:
        totals = self.run_size(app)
        return (*map(self._remove, self.shuffle_ids(app)), AppRemoved(app, reason, *totals))

    def _remove(self, id: ShuffleId) -> ShuffleRemoved:
        outputs = self._shuffles.pop(id)
        if self._counted is not None:
            self._counted.removed(outputs)
        del self._current[id.current()]
        return ShuffleRemoved(id, tuple(outputs.winners.workers()))

    # ----------------------------------------------------------------------------------- questions

    def index(self) -> Index:
        """Lists and sums. The first call makes them, from the rows of each shuffle's outputs."""
        if self._counted is None:
            self._counted = Index.of(self._shuffles.values())
        return self._counted

    def app(self, app: str) -> AppRecord:
        """
        :raises AppExpired: it fell silent.
        :raises UnknownApp: it is not registered.
        """
        return self._apps.get(app)

    def apps(self) -> list[AppRecord]:
        """The registered applications."""
        return list(self._apps.live.values())

    def runs_of(self, name: str) -> int:
        """How many runs of an application are registered (`ids.name_of`)."""
        return self._apps.runs.get(name, 0)

    def has_app(self, app: str) -> bool:
        """Whether a run is registered."""
        return app in self._apps.live

    def spec(self, id: ShuffleId) -> ShuffleSpec:
        """What a shuffle is, with its whole id: that of the current generation if `id` names none.

        :raises AppExpired: its application fell silent.
        :raises UnknownShuffle: it is not registered, or another generation of its number is.
        """
        return self._outputs(id).spec

    def is_registered(self, id: ShuffleId) -> bool:
        """Whether exactly this generation of a shuffle is."""
        return id in self._shuffles

    def has_current(self, id: ShuffleId) -> bool:
        """Whether some generation of the number is registered."""
        return id.current() in self._current

    def summary(self, id: ShuffleId) -> ShuffleSummary | None:
        """A shuffle in numbers; None when exactly this generation is not registered."""
        outputs = self._shuffles.get(id)
        if outputs is None:
            return None
        return ShuffleSummary(outputs.spec, len(outputs.winners), outputs.totals, outputs.degraded)

    def shuffle_ids(self, app: str | None = None) -> list[ShuffleId]:
        """The registered shuffles, of one run or of all, as a list to be gone through by who holds no lock."""
        return list(self._shuffles if app is None else self.index().runs.get(app, RunShuffles()).ids)

    def shuffles(self, app: str | None = None) -> list[ShuffleSpec]:
        """What they are. Goes through all of them."""
        return [self._shuffles[id].spec for id in self.shuffle_ids(app)]

    def run_size(self, app: str) -> tuple[int, int]:
        """How many shuffles a run has, and the payload of their committed outputs."""
        run = self.index().runs.get(app, RunShuffles())
        return len(run.ids), run.bytes

    def shuffles_of(self, name: str) -> int:
        """How many shuffles the runs of an application have, which is named by them all (`ids.name_of`)."""
        return self.index().names.get(name, 0)

    def shuffles_at(self, worker: str) -> list[ShuffleId]:
        """The shuffles of which a committed output lies at a worker, there alone or there too."""
        return self.index().shuffles_at(worker)

    def held_in(self, id: ShuffleId, worker: str, first: int = 0, limit: int | None = None) -> list[MapOutput]:
        """The committed outputs of one shuffle that lie at a worker, up to `limit` of them from number `first` on;
        none of a shuffle that is not registered.
        """
        outputs = self._shuffles.get(id)
        return [] if outputs is None else outputs.held_by(worker, first, limit)

    def count_in(self, id: ShuffleId, worker: str) -> int:
        """How many committed outputs of a shuffle lie at a worker."""
        outputs = self._shuffles.get(id)
        return 0 if outputs is None else outputs.count_at(worker)

    def held_by(self, worker: str) -> list[tuple[ShuffleId, MapOutput]]:
        """The committed outputs that lie at a worker. As `held_in`, shuffle by shuffle."""
        return [(id, output) for id in self.shuffles_at(worker) for output in self.held_in(id, worker)]

    def ranges_at(self, worker: str, limit: int) -> list[tuple[ShuffleId, int, int]]:
        """Shuffles with maps [first, end), of which `limit` committed outputs lie at a worker; none where no more than
        these lie there."""
        found, left = list[tuple[ShuffleId, int, int]](), limit
        for id in self.shuffles_at(worker):
            if not left:
                return found
            outputs = self._shuffles[id].winners
            found.append((id, *outputs.range_at(worker, left)))
            if outputs.count_at(worker) > left:
                return found
            left -= outputs.count_at(worker)
        return []

    def held_of(self, id: ShuffleId, worker: str, first: int, end: int) -> list[MapOutput]:
        """The committed outputs of the maps [first, end) that lie at a worker. Raises what `spec` raises."""
        return self._outputs(id).winners.held_of(worker, first, end)

    def only_at(self, worker: str, others: Collection[str] | None = None) -> tuple[int, int]:
        """How many committed outputs lie at a worker and at none of the `others` (None: nowhere else), and their
        payload."""
        return self.index().only_at(worker, others)

    def map_output(self, id: ShuffleId, map: int) -> MapOutput:
        """The committed output of one map.

        :raises MapOutputNotWritten: no attempt has committed yet.
        :raises MapOutputLost: the one that had is gone.
        :raises AppExpired: its application fell silent.
        :raises UnknownShuffle: the shuffle is not registered.
        """
        return self._outputs(id).get(map)

    def map_outputs(
        self, id: ShuffleId, first: int = 0, end: int | None = None, limit: int | None = None
    ) -> tuple[list[MapOutput], int | None]:
        """The committed outputs of a page of `located`, and where the next page begins."""
        outputs, _, following = self.located(id, first, end, limit)
        return outputs, following

    def located(
        self, id: ShuffleId, first: int = 0, end: int | None = None, limit: int | None = None
    ) -> tuple[list[MapOutput], list[LostOutput], int | None]:
        """A page of maps [first, end), ascending: the committed outputs, and what was lost and not written again, of at
        most `limit` maps; and the map the next page begins with, None after the last. None for `end` or `limit` means
        all. Raises what `spec` raises.
        """
        page, lost = self.page(id, first, end, limit)
        return page.outputs(), lost, page.following

    def page(
        self, id: ShuffleId, first: int = 0, end: int | None = None, limit: int | None = None
    ) -> tuple[OutputPage, list[LostOutput]]:
        """As `located`, for a lock that is to be held for a short time: what is made of the page later needs none."""
        return self._outputs(id).page(first, end, limit)

    def version(self, id: ShuffleId) -> int:
        """Another number after each change of a shuffle's outputs, which no other shuffle has; 0 before the first. A
        registry that is recovered begins anew. Raises what `spec` raises."""
        return self._outputs(id).winners.version

    def lost(self, id: ShuffleId, first: int = 0, end: int | None = None) -> list[LostOutput]:
        """What was lost of maps [first, end) and not written again, ascending. Raises what `spec` raises."""
        return self._outputs(id).lost_now(first, end)

    def losses(self, id: ShuffleId) -> list[LostOutput]:
        """Everything that was lost of a shuffle, also what was written again since. Raises what `spec` raises."""
        return self._outputs(id).losses()

    def worker(self, id: str) -> WorkerInfo:
        """:raises InvalidArgument: no such worker is registered."""
        if id not in self._workers:
            some = ", ".join(islice(self._workers, 10))  # to name all takes longer than to register one
            raise InvalidArgument(f"worker {id!r} is not registered", remedy=f"known: {some or 'none'}")
        return self._workers[id]

    def workers(self) -> list[WorkerInfo]:
        """The registered workers."""
        return list(self._workers.values())

    def figures(self) -> RegistryFigures:
        """How much there is of everything."""
        index = self.index()
        return RegistryFigures(
            apps=len(self._apps.live),
            shuffles=len(self._shuffles),
            most_shuffles=max(index.names.values(), default=0),
            workers=len(self._workers),
            committed=index.committed,
            lost=index.lost,
            bytes=index.bytes,
        )

    def operations(self) -> Iterator[Operation]:
        """A short list of operations that makes an empty registry equal to this one: what `records` encodes."""
        decode = Decoder().decode
        return (operation for record in self.records() for operation in decode(record))

    def records(self) -> Iterator[bytes]:
        """The operations of a snapshot, encoded as in the log. The registry must not change while they are drawn."""
        apps, shuffles = self._apps, self._shuffles.values()
        if self.journal:
            yield encode(BeginJournal(self.journal))
        yield from (encode(record.operation) for record in apps.expired.values())
        if apps.expired:
            yield encode(ExpireApps(tuple(apps.expired)))
        # Lost outputs may have lain at workers that are gone: those come back for as long as they are needed.
        used = set[str]().union(*(outputs.lost_at() for outputs in shuffles))
        gone = sorted(used - self._workers.keys())
        yield from (encode(RegisterWorker(info)) for info in self._workers.values())
        yield from (encode(RegisterWorker(WorkerInfo(worker, host="", port=0))) for worker in gone)
        yield from (encode(record.operation) for record in apps.live.values())
        for outputs in shuffles:
            yield from outputs.records()
        yield from (encode(LoseWorker(worker, reason="gone")) for worker in gone)

    def _find(self, id: ShuffleId) -> ShuffleId | None:
        """The whole id of a registered shuffle."""
        if id in self._shuffles:
            return id
        return self._current.get(id)

    def _outputs(self, id: ShuffleId) -> ShuffleOutputs:
        outputs = self._shuffles.get(id)
        if outputs is not None:
            return outputs
        found = self._find(id)
        if found is None:
            self._apps.check_not_expired(id.app)
            current = self._current.get(id.current())
            raise UnknownShuffle(
                "the shuffle is not registered"
                if current is None
                else f"generation {id.generation} of the shuffle is over, {current.generation} is registered",
                shuffle=id,
            )
        return self._shuffles[found]

    def _own(self, id: ShuffleId) -> ShuffleOutputs:
        """To be changed. Raises what `_outputs` raises."""
        outputs = self._outputs(id)
        if outputs.owner is not self._owner:
            outputs = self._shuffles[outputs.spec.id] = outputs.clone(self._owner)
        return outputs

    _HANDLERS: ClassVar[dict[type, Callable[[Registry, Any], tuple[Event, ...]]]] = {
        BeginJournal: _begin_journal,
        RegisterApp: _register_app,
        UnregisterApp: _unregister_app,
        ExpireApps: _expire_apps,
        RegisterShuffle: _register_shuffle,
        UnregisterShuffle: _unregister_shuffle,
        CommitMapOutput: _commit_map_output,
        LoseMapOutput: _lose_map_output,
        LoseWorkerOutputs: _lose_worker_outputs,
        RegisterWorker: _register_worker,
        LoseWorker: _lose_worker,
    }


def _before_copy(output: MapOutput) -> MapOutput:
    """A winner as it was before its last worker had a copy."""
    return output.at(*output.workers[:-1])
