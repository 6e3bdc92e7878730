"""Map outputs of one shuffle: the first commit wins, lost attempts stay refused, pages are complete."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.errors import AttemptSuperseded, CommitMismatch, MapOutputLost, MapOutputNotWritten
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry import LostOutput, OutputMoved
from shuffle_api.registry.output_rows import OutputRows
from shuffle_api.registry.outputs import ShuffleOutputs
from shuffle_api.values import MapOutput, ShuffleSpec, Totals

ID = ShuffleId("app", 1)


def output(map: int, attempt: int = 0, worker: str = "w", records: int = 1) -> MapOutput:
    return MapOutput(MapAttempt(map, attempt), worker, Totals(records=records))


@pytest.fixture
def outputs() -> ShuffleOutputs:
    return ShuffleOutputs(ShuffleSpec(ID, 2, 3))


def test_first_commit_wins_and_its_repetition_changes_nothing(outputs: ShuffleOutputs) -> None:
    assert outputs.commit(output(0))
    assert not outputs.commit(output(0))
    assert outputs.get(0) == output(0)


def test_commit_of_another_attempt_is_refused_by_the_winners_name(outputs: ShuffleOutputs) -> None:
    outputs.commit(output(0, 1, worker="here"))
    with pytest.raises(AttemptSuperseded) as raised:
        outputs.commit(output(0, 2, worker="there"))
    assert (raised.value.output, raised.value.worker, raised.value.shuffle) == (MapAttempt(0, 1), "here", ID)
    assert outputs.get(0) == output(0, 1, worker="here")


@pytest.mark.parametrize("second", [output(0, records=2), output(0, worker="there", records=2)])
def test_same_attempt_with_another_statement_is_refused(outputs: ShuffleOutputs, second: MapOutput) -> None:
    outputs.commit(output(0))
    with pytest.raises(CommitMismatch):
        outputs.commit(second)
    assert outputs.get(0) == output(0)


def test_losing_says_what_was_lost_and_where(outputs: ShuffleOutputs) -> None:
    outputs.commit(output(0))
    found = outputs.lose(MapAttempt(0, 0), "disk broke")
    assert found is not None
    was, event = found
    assert was == output(0)
    assert isinstance(event, LostOutput)
    assert (event.shuffle, event.output, event.reason) == (ID, output(0), "disk broke")
    with pytest.raises(MapOutputLost, match="disk broke") as raised:
        outputs.get(0)
    assert (raised.value.output, raised.value.worker) == (MapAttempt(0, 0), "w")


@pytest.mark.parametrize("stale", [MapAttempt(0, 1), MapAttempt(1, 0)])
def test_losing_what_is_not_the_winner_changes_nothing(outputs: ShuffleOutputs, stale: MapAttempt) -> None:
    outputs.commit(output(0))
    assert outputs.lose(stale, "late") is None
    assert outputs.get(0) == output(0)


def test_losing_again_keeps_the_first_reason(outputs: ShuffleOutputs) -> None:
    outputs.commit(output(0))
    outputs.lose(MapAttempt(0, 0), "first")
    assert outputs.lose(MapAttempt(0, 0), "second") is None
    with pytest.raises(MapOutputLost, match="first"):
        outputs.get(0)


def test_new_attempt_may_commit_after_a_loss_and_lost_ones_never_again(outputs: ShuffleOutputs) -> None:
    outputs.commit(output(0, 0))
    outputs.lose(MapAttempt(0, 0), "disk broke")
    with pytest.raises(MapOutputLost, match="map 0 attempt 0 has committed before and was lost: disk broke"):
        outputs.commit(output(0, 0))
    assert outputs.commit(output(0, 1))
    outputs.lose(MapAttempt(0, 1), "again")
    for lost in (0, 1):
        with pytest.raises(MapOutputLost):
            outputs.commit(output(0, lost))
    assert outputs.commit(output(0, 2))
    assert outputs.get(0) == output(0, 2)


def test_never_written_is_told_from_lost(outputs: ShuffleOutputs) -> None:
    outputs.commit(output(0))
    outputs.lose(MapAttempt(0, 0), "gone")
    with pytest.raises(MapOutputNotWritten, match="map 1"):
        outputs.get(1)


def test_lost_outputs_are_listed_until_written_again(outputs: ShuffleOutputs) -> None:
    for map in (2, 0, 1):
        outputs.commit(output(map))
        outputs.lose(MapAttempt(map, 0), "gone")
    assert [event.output.output.map for event in outputs.lost_now(0, None)] == [0, 1, 2]
    assert [event.output.output.map for event in outputs.lost_now(1, 2)] == [1]
    outputs.commit(output(1, 1))
    assert [event.output.output.map for event in outputs.lost_now(0, None)] == [0, 2]


def test_the_winner_at_another_worker_is_a_copy_and_a_lost_copy_is_no_lost_output(outputs: ShuffleOutputs) -> None:
    outputs.commit(output(0, worker="w1"))
    assert outputs.commit(output(0, worker="w2")) == OutputMoved(ID, output(0).at("w1", "w2"))
    assert outputs.commit(output(0, worker="w2")) is None
    assert outputs.held_by("w2") == [output(0).at("w1", "w2")]
    assert (outputs.count_at("w1"), outputs.count_at("w2"), outputs.count_at("w3")) == (1, 1, 0)
    both = output(0).at("w1", "w2")
    assert outputs.lose(MapAttempt(0, 0), "burnt", "w1") == (both, OutputMoved(ID, output(0).at("w2")))
    assert outputs.lose(MapAttempt(0, 0), "burnt", "w1") is None
    assert outputs.get(0) == output(0, worker="w2")
    left = output(0, worker="w2")
    assert outputs.lose(MapAttempt(0, 0), "drowned", "w2") == (left, LostOutput(ID, left, "drowned"))
    with pytest.raises(MapOutputLost, match="drowned"):
        outputs.get(0)


def test_outputs_held_by_a_worker_are_those_committed_there(outputs: ShuffleOutputs) -> None:
    outputs.commit(output(0, worker="w1"))
    outputs.commit(output(1, worker="w2"))
    assert outputs.held_by("w1") == [output(0, worker="w1")]
    assert outputs.held_by("w3") == []


class Looks(OutputRows):
    """Winners that count how many of them are looked at."""

    count = 0

    def _output(self, row: int) -> MapOutput:
        self.count += 1
        return super()._output(row)

    def _numbered(self, first: int, end: int | None) -> Any:
        raise AssertionError("all outputs are gone through")


@pytest.mark.parametrize("replicas", [1, 2])
def test_what_a_worker_holds_is_found_without_a_look_at_other_outputs(replicas: int) -> None:
    outputs = ShuffleOutputs(ShuffleSpec(ID, 4, 1000, replicas=replicas), winners=(looks := Looks()))
    for map in range(1000):
        outputs.commit(output(map, worker=f"w{map % 100}"))
        if replicas == 2:
            outputs.commit(output(map, worker=f"w{(map + 1 + map // 100) % 100}"))
    wanted = {map for map in range(1000) if "w7" in outputs.get(map).workers}
    looks.count = 0
    assert {each.output.map for each in outputs.held_by("w7")} == wanted
    assert looks.count == len(wanted) == outputs.count_at("w7") == 10 * replicas
    pages = [outputs.held_by("w7", first, 3) for first in range(0, len(wanted), 3)]
    assert [each for page in pages for each in page] == outputs.held_by("w7")
    looks.count = 0
    for map in sorted(wanted):
        outputs.lose(MapAttempt(map, 0), "gone", "w7")
    assert looks.count == len(wanted)
    assert outputs.held_by("w7") == []
    assert (outputs.degraded, outputs.totals.records) == ((20, 1000) if replicas == 2 else (0, 990))


@given(
    committed=st.lists(st.integers(0, 30), unique=True),
    lost=st.sets(st.integers(0, 30)),
    first=st.integers(0, 32),
    end=st.none() | st.integers(0, 32),
    limit=st.none() | st.integers(1, 7),
)
def test_pages_together_are_the_winners_and_the_losses_of_the_range_ascending(
    committed: list[int], lost: set[int], first: int, end: int | None, limit: int | None
) -> None:
    outputs = ShuffleOutputs(ShuffleSpec(ID, 1, 31))
    for map in committed:
        outputs.commit(output(map))
    for map in lost:
        outputs.lose(MapAttempt(map, 0), "gone")
    wanted = sorted(n for n in committed if first <= n and (end is None or n < end))
    got: list[int] = []
    gone: list[int] = []
    at: int | None = first
    while at is not None:
        page, losses = outputs.page(at, end, limit)
        at = page.following
        assert limit is None or len(page.rows) + len(losses) <= limit
        assert at is None or len(page.rows) + len(losses) == limit
        assert page.outputs() == [output(map) for map, *_ in page.rows]
        got.extend(each.output.map for each in page.outputs())
        gone.extend(event.output.output.map for event in losses)
    assert got == [n for n in wanted if n not in lost]
    assert gone == [n for n in wanted if n in lost]
