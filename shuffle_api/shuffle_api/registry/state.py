"""The registry's state, the operations that change it, and the questions it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from shuffle_api.errors import InvalidArgument, ShuffleExists, UnknownShuffle
from shuffle_api.ids import ShuffleId
from shuffle_api.registry.apps import AppRecord, Apps
from shuffle_api.registry.events import (
    AppRemoved,
    Event,
    LostOutput,
    ShuffleRemoved,
    WorkerLost,
)
from shuffle_api.registry.operations import (
    CommitMapOutput,
    ExpireApps,
    LoseMapOutput,
    LoseWorker,
    Operation,
    RegisterApp,
    RegisterShuffle,
    RegisterWorker,
    UnregisterApp,
    UnregisterShuffle,
)
from shuffle_api.registry.outputs import ShuffleOutputs
from shuffle_api.registry.snapshot import rebuild
from shuffle_api.values import MapOutput, ShuffleSpec, WorkerInfo


@dataclass(frozen=True, slots=True)
class Figures:
    """A registry in numbers."""

    apps: int  # registered, not expired
    shuffles: int
    workers: int
    committed: int  # maps with a committed output
    lost: int  # maps whose output is lost and not written again
    bytes: int  # payload of the committed outputs


class Registry:
    """Applications, shuffles, map outputs and workers. Not thread-safe: the caller holds a lock or is alone."""

    def __init__(self) -> None:
        self._apps = Apps()
        self._shuffles: dict[ShuffleId, ShuffleOutputs] = {}
        self._current: dict[ShuffleId, ShuffleId] = {}  # by `ShuffleId.current`: a number has one generation at a time
        self._workers: dict[str, WorkerInfo] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Registry):
            return NotImplemented
        return self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> Registry:
        """An equal registry that stays as it is when this one changes; for drawing a snapshot while work goes on.

        Takes time for each shuffle, not for each map output: a shuffle is shared until one of the two changes it.
        """
        copy = Registry()
        copy._apps, copy._shuffles, copy._workers = self._apps.clone(), dict(self._shuffles), dict(self._workers)
        copy._current = dict(self._current)
        for outputs in self._shuffles.values():
            outputs.shared = True
        return copy

    # ------------------------------------------------------------------------------------ change

    def apply(self, operation: Operation) -> tuple[Event, ...]:
        """Make one change and say what it brought about. When it raises, nothing has changed.

        :raises AppExists: RegisterApp: another instance has this id.
        :raises AppExpired: the operation names a shuffle of an application that expired.
        :raises UnknownApp: RegisterShuffle: no such application.
        :raises ShuffleExists: RegisterShuffle: the id is taken by a shuffle with other properties.
        :raises UnknownShuffle: CommitMapOutput, LoseMapOutput: no such shuffle.
        :raises InvalidArgument: CommitMapOutput: the worker is not registered, or there are several.
        :raises AttemptSuperseded: CommitMapOutput: another attempt has won; `.output` and `.worker` name it.
        :raises CommitMismatch: CommitMapOutput: this attempt has won with other totals.
        :raises MapOutputLost: CommitMapOutput: this attempt had won and was lost.
        """
        return self._HANDLERS[type(operation)](self, operation)

    def _register_app(self, op: RegisterApp) -> tuple[Event, ...]:
        self._apps.register(AppRecord(op.app, op.instance, op.name))
        return ()

    def _unregister_app(self, op: UnregisterApp) -> tuple[Event, ...]:
        gone = self._apps.live.pop(op.app, None)
        return () if gone is None else self._removed(op.app, "unregistered")

    def _expire_apps(self, op: ExpireApps) -> tuple[Event, ...]:
        return tuple(event for app in self._apps.expire(op.apps) for event in self._removed(app, "expired"))

    def _register_shuffle(self, op: RegisterShuffle) -> tuple[Event, ...]:
        id = op.spec.id
        self._apps.get(id.app)
        current = self._current.get(id.current())
        if current is None:
            self._shuffles[id] = ShuffleOutputs(op.spec)
            self._current[id.current()] = id
            return ()
        present = self._shuffles[current].spec
        if replace(op.spec, id=current) != present:
            raise ShuffleExists(f"the shuffle is registered as {present}, not {op.spec}", shuffle=id)
        return ()

    def _unregister_shuffle(self, op: UnregisterShuffle) -> tuple[Event, ...]:
        id = self._find(op.id)
        return () if id is None else (self._remove(id),)

    def _commit_map_output(self, op: CommitMapOutput) -> tuple[Event, ...]:
        outputs = self._own(op.shuffle)
        # A commit by a worker that was given up would make outputs visible that nobody can reach.
        if op.output.worker not in self._workers:
            raise InvalidArgument(
                f"worker {op.output.worker!r} is not registered",
                remedy="register the worker before it commits",
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
        return () if event is None else (event,)

    def _lose_map_output(self, op: LoseMapOutput) -> tuple[Event, ...]:
        event = self._own(op.shuffle).lose(op.output, op.reason, op.worker)
        return () if event is None else (event,)

    def _register_worker(self, op: RegisterWorker) -> tuple[Event, ...]:
        self._workers[op.info.id] = op.info
        return ()

    def _lose_worker(self, op: LoseWorker) -> tuple[Event, ...]:
        info = self._workers.pop(op.worker, None)
        if info is None:
            return ()
        lost: list[Event | None] = [
            self._own(id).lose(attempt, op.reason, op.worker)
            for id, outputs in list(self._shuffles.items())
            for attempt in outputs.held_by(op.worker)
        ]
        return (WorkerLost(info, op.reason), *(event for event in lost if event is not None))

    def _removed(self, app: str, reason: Literal["unregistered", "expired"]) -> tuple[Event, ...]:
        ids = [id for id in self._shuffles if id.app == app]
        return (*map(self._remove, ids), AppRemoved(app, reason))

    def _remove(self, id: ShuffleId) -> ShuffleRemoved:
        del self._shuffles[id], self._current[id.current()]
        return ShuffleRemoved(id)

    # ----------------------------------------------------------------------------------- questions

    def app(self, app: str) -> AppRecord:
        """
        :raises AppExpired: it fell silent.
        :raises UnknownApp: it is not registered.
        """
        return self._apps.get(app)

    def apps(self) -> list[AppRecord]:
        """The registered applications."""
        return list(self._apps.live.values())

    def spec(self, id: ShuffleId) -> ShuffleSpec:
        """What a shuffle is, with its whole id: that of the current generation if `id` names none.

        :raises AppExpired: its application fell silent.
        :raises UnknownShuffle: it is not registered, or another generation of its number is.
        """
        return self._outputs(id).spec

    def is_registered(self, id: ShuffleId) -> bool:
        """Whether exactly this generation of a shuffle is."""
        return id in self._shuffles

    def held_by(self, worker: str) -> list[tuple[ShuffleId, MapOutput]]:
        """The committed outputs that lie at a worker, there alone or there too. Goes through all outputs."""
        return [
            (id, winner)
            for id, outputs in self._shuffles.items()
            for winner in outputs.winners.values()
            if worker in winner.workers
        ]

    def shuffles(self, app: str | None = None) -> list[ShuffleSpec]:
        """The registered shuffles, of one application or of all. Empty for an unknown application."""
        return [outputs.spec for id, outputs in self._shuffles.items() if app in (None, id.app)]

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
        """A page of the committed outputs of maps [first, end), ascending: at most `limit` of them, and the map
        the next page begins with, None after the last. None for `end` or `limit` means all. Raises what `spec` raises.
        """
        return self._outputs(id).page(first, end, limit)

    def lost(self, id: ShuffleId, first: int = 0, end: int | None = None) -> list[LostOutput]:
        """What was lost of maps [first, end) and not written again, ascending. Raises what `spec` raises."""
        return self._outputs(id).lost_now(first, end)

    def losses(self, id: ShuffleId) -> list[LostOutput]:
        """Everything that was lost of a shuffle, also what was written again since. Raises what `spec` raises."""
        return self._outputs(id).losses()

    def worker(self, id: str) -> WorkerInfo:
        """:raises InvalidArgument: no such worker is registered."""
        if id not in self._workers:
            raise InvalidArgument(
                f"worker {id!r} is not registered", remedy=f"known: {', '.join(sorted(self._workers)) or 'none'}"
            )
        return self._workers[id]

    def workers(self) -> list[WorkerInfo]:
        """The registered workers."""
        return list(self._workers.values())

    def figures(self) -> Figures:
        """How much there is of everything; takes a moment per shuffle, not per map output."""
        shuffles = self._shuffles.values()
        committed = sum(len(outputs.winners) for outputs in shuffles)
        return Figures(
            apps=len(self._apps.live),
            shuffles=len(shuffles),
            workers=len(self._workers),
            committed=committed,
            lost=sum(len(outputs.maps) for outputs in shuffles) - committed,
            bytes=sum(outputs.bytes for outputs in shuffles),
        )

    def operations(self) -> Iterator[Operation]:
        """A short list of operations that makes an empty registry equal to this one: a snapshot, in the form of
        the log. The registry must not change while it is drawn."""
        return rebuild(self._apps, self._shuffles.values(), self._workers)

    def _find(self, id: ShuffleId) -> ShuffleId | None:
        """The whole id of a registered shuffle."""
        if id in self._shuffles:
            return id
        return self._current.get(id)

    def _outputs(self, id: ShuffleId) -> ShuffleOutputs:
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
        if outputs.shared:
            outputs = self._shuffles[outputs.spec.id] = outputs.clone()
        return outputs

    _HANDLERS: ClassVar[dict[type, Callable[[Registry, Any], tuple[Event, ...]]]] = {
        RegisterApp: _register_app,
        UnregisterApp: _unregister_app,
        ExpireApps: _expire_apps,
        RegisterShuffle: _register_shuffle,
        UnregisterShuffle: _unregister_shuffle,
        CommitMapOutput: _commit_map_output,
        LoseMapOutput: _lose_map_output,
        RegisterWorker: _register_worker,
        LoseWorker: _lose_worker,
    }
