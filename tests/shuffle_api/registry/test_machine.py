"""The registry under random operations, held against a model that keeps history instead of state.

After every operation: a refusal changed nothing, repeating it changes nothing, the snapshot rebuilds the state (and so
does the log of what was accepted, at the end), and every map is answered for as its history says.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shuffle_api.errors import (
    AppExpired,
    MapOutputLost,
    MapOutputNotWritten,
    ShuffleError,
    UnknownShuffle,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry import (
    AppRemoved,
    BeginJournal,
    CommitMapOutput,
    Event,
    ExpireApps,
    LoseMapOutput,
    LoseWorker,
    LoseWorkerOutputs,
    LostOutput,
    MapOutputCommitted,
    Operation,
    OutputMoved,
    RegisterApp,
    RegisterShuffle,
    RegisterWorker,
    Registry,
    ShuffleRemoved,
    UnregisterApp,
    UnregisterShuffle,
    WorkerLost,
)
from shuffle_api.values import MapOutput, ShuffleSpec, Totals, WorkerInfo

# Few names, so that operations meet.
APPS, MAPS = st.sampled_from("ab"), st.integers(0, 2)
IDS = st.builds(ShuffleId, APPS, st.integers(0, 1))
ATTEMPTS = st.builds(MapAttempt, MAPS, st.integers(0, 2))
WORKERS = st.sampled_from(["w1", "w2"])
OUTPUTS = st.builds(MapOutput, ATTEMPTS, WORKERS, st.builds(Totals, bytes=st.sampled_from([0, 7])))
REASONS = st.sampled_from(["disk", "power"])
ALL_IDS = [ShuffleId(app, number) for app in "ab" for number in range(2)]

COMMITS = st.builds(CommitMapOutput, IDS, OUTPUTS)
SETTING_UP = st.one_of(
    st.builds(RegisterApp, APPS, st.sampled_from(["run-1", "run-2"]), st.just("")),
    st.builds(RegisterShuffle, st.builds(ShuffleSpec, IDS, st.integers(1, 2), st.just(3))),
    st.builds(BeginJournal, st.sampled_from("xy")),
    st.builds(RegisterWorker, st.builds(WorkerInfo, WORKERS, st.just("host"), st.integers(0, 1))),
)
LOSING = st.one_of(
    st.builds(LoseMapOutput, IDS, ATTEMPTS, REASONS, st.one_of(st.just(""), WORKERS)),
    st.builds(LoseWorkerOutputs, IDS, WORKERS, REASONS, MAPS, MAPS),
    st.builds(LoseWorker, WORKERS, REASONS),
    st.builds(UnregisterShuffle, IDS),
    st.builds(UnregisterApp, APPS),
    st.builds(ExpireApps, st.lists(APPS, max_size=2).map(tuple)),
)


@dataclass
class History:
    """Of one shuffle, by map: the outputs that were committed, and of these the ones that were lost."""

    committed: dict[int, list[MapOutput]] = field(default_factory=dict)
    lost: dict[int, list[MapOutput]] = field(default_factory=dict)

    def winner(self, map: int) -> MapOutput | None:
        lost = [each.output for each in self.lost.get(map, [])]
        living = [each for each in self.committed.get(map, []) if each.output not in lost]
        assert len(living) <= 1, f"map {map} has several winners: {living}"
        return living[0] if living else None

    def move(self, output: MapOutput) -> None:
        former = self.winner(output.output.map)
        assert former is not None
        assert (former.output, former.totals) == (output.output, output.totals)
        assert set(former.workers) ^ set(output.workers)
        outputs = self.committed[output.output.map]
        outputs[outputs.index(former)] = output


class RegistryMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.registry = Registry()
        self.log: list[Operation] = []
        self.shuffles: dict[ShuffleId, History] = {}
        self.expired: set[str] = set()
        self.copies: list[tuple[Registry, Registry]] = []  # a copy, and the state that it must keep
        self.follower, self.pending = (
            self.registry.copy(),
            list[Operation](),
        )  # the operations that it has still to apply
        self.follows = copy.deepcopy(self.follower)

    @initialize()
    def begin(self) -> None:
        for worker in ("w1", "w2"):
            self.apply(RegisterWorker(WorkerInfo(worker, "host", 0)))
        self.apply(RegisterApp("a", "run-1", ""))
        self.apply(RegisterShuffle(ShuffleSpec(ShuffleId("a", 0), 1, 3)))

    @rule()
    def copy(self) -> None:
        self.copies.append((self.registry.copy(), copy.deepcopy(self.registry)))

    @precondition(lambda self: self.copies)
    @rule()
    def go_on_with_the_copy(self) -> None:
        assert self.registry.copy() == self.registry
        self.registry, original = self.registry.copy(), self.registry
        self.copies.append((original, copy.deepcopy(original)))

    @rule()
    def the_follower_catches_up(self) -> None:
        for operation in self.pending:
            self.follower.apply(operation)
        self.pending.clear()
        assert self.follower == self.registry
        self.follows = copy.deepcopy(self.follower)

    @precondition(lambda self: self.shuffles)
    @rule(data=st.data(), catches_up=st.booleans())
    def outputs_are_shared_with_the_follower(self, data: st.DataObject, catches_up: bool) -> None:
        id = data.draw(st.sampled_from(sorted(self.shuffles)))
        for map in range(3):
            self.apply(CommitMapOutput(id, MapOutput(MapAttempt(map, 0), "w1", Totals())))
        if catches_up:
            self.the_follower_catches_up()
        for each in ALL_IDS:
            self.registry.share(each, self.follower)

    @rule(operation=SETTING_UP)
    def set_up(self, operation: Operation) -> None:
        self.apply(operation)

    @rule(operation=COMMITS)
    def commit(self, operation: Operation) -> None:
        self.apply(operation)

    @precondition(lambda self: self.shuffles)
    @rule(data=st.data(), outputs=st.lists(OUTPUTS, max_size=3))
    def commit_where_it_counts(self, data: st.DataObject, outputs: list[MapOutput]) -> None:
        id = data.draw(st.sampled_from(sorted(self.shuffles)))
        for output in outputs:
            self.apply(CommitMapOutput(id, output))

    @rule(operation=LOSING)
    def lose(self, operation: Operation) -> None:
        self.apply(operation)

    @precondition(lambda self: self.winners())
    @rule(data=st.data(), reason=REASONS)
    def lose_a_winner(self, data: st.DataObject, reason: str) -> None:
        id, output = data.draw(st.sampled_from(self.winners()))
        self.apply(LoseMapOutput(id, output.output, reason))

    @precondition(lambda self: self.winners())
    @rule(data=st.data(), worker=WORKERS)
    def copy_a_winner(self, data: st.DataObject, worker: str) -> None:
        id, output = data.draw(st.sampled_from(self.winners()))
        self.apply(CommitMapOutput(id, output.at(worker)))

    @precondition(lambda self: self.winners())
    @rule(data=st.data(), reason=REASONS)
    def lose_a_winner_at_one_worker(self, data: st.DataObject, reason: str) -> None:
        id, output = data.draw(st.sampled_from(self.winners()))
        self.apply(LoseMapOutput(id, output.output, reason, data.draw(st.sampled_from(output.workers))))

    @precondition(lambda self: self.ever_committed())
    @rule(data=st.data())
    def commit_again(self, data: st.DataObject) -> None:
        id, output = data.draw(st.sampled_from(self.ever_committed()))
        self.apply(CommitMapOutput(id, output.at(output.worker)))

    def ever_committed(self) -> list[tuple[ShuffleId, MapOutput]]:
        return [
            (id, output) for id, h in self.shuffles.items() for outputs in h.committed.values() for output in outputs
        ]

    def winners(self) -> list[tuple[ShuffleId, MapOutput]]:
        return [
            (id, output)
            for id, output in self.ever_committed()
            if self.shuffles[id].winner(output.output.map) == output
        ]

    def apply(self, operation: Operation) -> None:
        before = copy.deepcopy(self.registry)
        try:
            events = self.registry.apply(operation)
        except ShuffleError:
            assert self.registry == before
            return
        self.log.append(operation)
        self.pending.append(operation)
        if isinstance(operation, RegisterApp):
            self.expired.discard(operation.app)
        if isinstance(operation, RegisterShuffle):
            self.shuffles.setdefault(operation.spec.id, History())
        lost = [event.worker.id for event in events if isinstance(event, WorkerLost)]
        assert all(isinstance(event, WorkerLost) for event in events[: len(lost)])  # before its outputs
        for event in events:
            self.note(event)
        if lost:
            living = [h.winner(map) for h in self.shuffles.values() for map in h.committed]
            assert not {holder for output in living if output for holder in output.workers} & set(lost)
        self.check_repeating(operation)

    def note(self, event: Event) -> None:
        match event:
            case MapOutputCommitted(id, output):
                assert self.shuffles[id].winner(output.output.map) is None
                assert output.output not in [each.output for each in self.shuffles[id].lost.get(output.output.map, [])]
                self.shuffles[id].committed.setdefault(output.output.map, []).append(output)
            case LostOutput(id, output, _):
                winner = self.shuffles[id].winner(output.output.map)
                assert winner is not None
                assert winner.output == output.output
                assert output.worker in winner.workers
                self.shuffles[id].lost.setdefault(output.output.map, []).append(output)
            case OutputMoved(id, output):
                self.shuffles[id].move(output)
            case ShuffleRemoved(id):
                del self.shuffles[id]
            case AppRemoved(app, reason):
                assert not [id for id in self.shuffles if id.app == app]
                if reason == "expired":
                    self.expired.add(app)

    def check_repeating(self, operation: Operation) -> None:
        after = copy.deepcopy(self.registry)
        assert self.registry.apply(operation) == ()
        assert self.registry == after

    @invariant()
    def every_map_is_answered_for_as_its_history_says(self) -> None:
        for id in ALL_IDS:
            for map in range(3):
                assert self.answer(id, map) == self.expectation(id, map)

    def answer(self, id: ShuffleId, map: int) -> object:
        try:
            return self.registry.map_output(id, map)
        except ShuffleError as error:
            return type(error)

    def expectation(self, id: ShuffleId, map: int) -> object:
        if id.app in self.expired:
            return AppExpired
        if id not in self.shuffles:
            return UnknownShuffle
        history = self.shuffles[id]
        return history.winner(map) or (MapOutputLost if map in history.lost else MapOutputNotWritten)

    @invariant()
    def lists_agree_with_single_answers(self) -> None:
        for id, history in self.shuffles.items():
            winners = [history.winner(map) for map in range(3)]
            assert self.registry.map_outputs(id) == ([each for each in winners if each], None)
            lost = [event.output.output.map for event in self.registry.lost(id)]
            assert lost == [map for map in sorted(history.lost) if history.winner(map) is None]
        assert {spec.id for spec in self.registry.shuffles()} == set(self.shuffles)

    @invariant()
    def figures_count_what_the_lists_show(self) -> None:
        figures, winners = self.registry.figures(), [output for _, output in self.winners()]
        assert (figures.committed, figures.bytes) == (len(winners), sum(output.totals.bytes for output in winners))
        assert figures.lost == sum(len(self.registry.lost(id)) for id in self.shuffles)
        assert (figures.apps, figures.shuffles) == (len(self.registry.apps()), len(self.shuffles))
        assert figures.workers == len(self.registry.workers())
        assert figures.most_shuffles == max(sum(id.app == app for id in self.shuffles) for app in "ab")

    @invariant()
    def what_is_counted_along_is_what_a_walk_finds(self) -> None:
        winners, registry = self.winners(), self.registry
        for id in self.shuffles:
            outputs = [output for each, output in winners if each == id]
            found = registry.summary(id)
            assert found is not None
            totals = Totals(bytes=sum(output.totals.bytes for output in outputs))
            assert (found.committed, found.totals, found.degraded) == (len(outputs), totals, 0)
        for app in "ab":
            ids = [id for id in self.shuffles if id.app == app]
            size = sum(output.totals.bytes for id, output in winners if id.app == app)
            assert (set(registry.shuffle_ids(app)), registry.run_size(app)) == (set(ids), (len(ids), size))
            assert registry.shuffles_of(app) == len(ids)
            assert registry.runs_of(app) == registry.has_app(app) == (app in [each.app for each in registry.apps()])
        for worker, other in (("w1", "w2"), ("w2", "w1")):
            held = [(id, output) for id, output in winners if worker in output.workers]
            assert len(registry.held_by(worker)) == len(held)
            assert set(registry.held_by(worker)) == set(held)
            for limit in (1, 2, len(held)):
                ranges = registry.ranges_at(worker, limit) if limit else []
                assert bool(ranges) == (0 < limit < len(held))
                first_ones = [out for each in ranges for out in registry.held_of(each[0], worker, *each[1:])]
                assert len(first_ones) == (limit if ranges else 0)
            only = [output.totals.bytes for _, output in held if other not in output.workers]
            assert registry.only_at(worker) == registry.only_at(worker, {other}) == (len(only), sum(only))
            every = [output.totals.bytes for _, output in held]
            assert registry.only_at(worker, {"w3"}) == (len(every), sum(every))

    @invariant()
    def copies_stay_as_they_were(self) -> None:
        for taken, expected in self.copies:
            assert taken == expected
        assert self.follower == self.follows

    @invariant()
    def snapshot_rebuilds_it(self) -> None:
        assert rebuilt(self.registry.operations()) == self.registry

    def teardown(self) -> None:
        assert rebuilt(self.log) == self.registry


def rebuilt(operations: Iterable[Operation]) -> Registry:
    registry = Registry()
    for operation in operations:
        registry.apply(operation)
    return registry


TestRegistryMachine = RegistryMachine.TestCase
# Without shrinking, which takes minutes here: thirty steps with these few names can be read as they are.
TestRegistryMachine.settings = settings(
    max_examples=80, stateful_step_count=30, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate)
)
