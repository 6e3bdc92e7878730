"""What the tasks of the benchmark store of a checkpoint, and what its report says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.streaming import changelog
from bench.streaming.checkpoint_store import CheckpointStore, KeyedState
from bench.streaming.plan import IDENTITY, Case, OperatorResult, SourceResult, Task
from bench.streaming.run import Outcome
from shuffle_api import ShuffleHandle, ShuffleId, ShuffleSpec
from shuffle_api.streaming import ReaderState

HANDLE = ShuffleHandle("pipelined", ShuffleSpec(ShuffleId("app", 0), 1, 1), "")


def test_snapshot_stays_as_it_was_while_the_state_changes() -> None:
    state = KeyedState(2 << 20)
    for _ in range(10):
        state.update(7)
    before = state.snapshot()
    copies = [chunk.copy() for chunk in before]
    for _ in range(10):
        state.update(3)
    assert all(np.array_equal(one, other) for one, other in zip(before, copies, strict=True))
    assert sum(int(chunk.sum()) for chunk in before) == 70
    assert sum(int(chunk.sum()) for chunk in state.snapshot()) == 100


def test_state_of_nothing_is_none() -> None:
    state = KeyedState(0)
    state.update(7)
    assert state.snapshot() == ()


@pytest.mark.parametrize("every", [1, 2])
def test_parts_are_stored_and_materializations_told(tmp_path: Path, every: int) -> None:
    case = Case(IDENTITY, stored=str(tmp_path), state_bytes=1 << 20, materialize_every=every)
    case = replace(case, options={"log_dir": "x"}) if every > 1 else case
    state = KeyedState(case.state_bytes)
    told: list[int] = []
    with CheckpointStore(Task("operator", 0, case, HANDLE, {}, 0.0)) as store:
        for checkpoint in range(1, 5):
            state.update(checkpoint)
            chunks = state.snapshot() if store.whole(checkpoint) else None
            store.put(checkpoint, ReaderState(checkpoint, {}), chunks)
    told += store.materialized()
    assert told == list(range(every, 5, every))
    assert sorted(store.stored_ms) == [1, 2, 3, 4]
    complete = tmp_path / (tmp_path / "operator-0-state").read_text()
    assert np.frombuffer(complete.read_bytes(), np.int64).sum() == 10
    slots = [f"operator-0-state-{turn}" for turn in (0, 1)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["operator-0-positions", "operator-0-state", *slots]


def outcome(stored: list[dict[int, float]]) -> Outcome:
    source = SourceResult(100, 0, 1.0, 1.0, (), 0.0, stored[0])
    operators = tuple(OperatorResult(100, 0, 0, 60, 0.5, 1.0, stored_ms=each, stored_bytes=5) for each in stored[1:])
    return Outcome(Case(IDENTITY, records=100), (source,), operators)


def test_checkpoint_takes_as_long_as_its_last_part_and_counts_when_all_parts_are_there() -> None:
    found = outcome([{1: 5.0, 2: 1.0, 3: 1.0}, {1: 2.0, 2: 4.0, 4: 9.0}])
    assert found.stored_ms == [4.0, 5.0]
    said = changelog.checkpoints([found, outcome([{7: 100.0}, {7: 1.0}])])
    assert (said["count"], said["p50_ms"], said["p99_ms"], said["stored_bytes"]) == (3, 5.0, 5.0, 10)


@pytest.mark.timeout(900)
def test_benchmark_runs(tmp_path: Path) -> None:
    tiny = replace(changelog.QUICK, records=20_000, seconds=1.0, states=(1,))
    found = changelog.cost(tiny, tmp_path)
    assert set(found["records_s"]) == {"with", "without"}
    state = changelog.state(tiny, tmp_path)["1 MiB"]
    assert set(state) == {"whole", "log"}
    assert not list((tmp_path / "log").glob("*"))  # the logs have ended with their runs


def test_checkpoints_of_the_start_and_the_end_of_a_run_do_not_count() -> None:
    took = {number: float(number) for number in range(1, 11)}
    assert outcome([took, took]).stored_ms == [4.0, 5.0, 6.0, 7.0, 8.0]
