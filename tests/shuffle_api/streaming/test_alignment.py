"""Barriers of several inputs: what waits, when the snapshot is due, when a checkpoint is complete."""

from __future__ import annotations

import pytest

from shuffle_api.streaming import Aligner, Alignment, Guarantee, Step

EXACTLY = Guarantee.EXACTLY_ONCE


def aligner(alignment: Alignment = Alignment.ALIGNED, guarantee: Guarantee = EXACTLY, passed: int = -1) -> Aligner:
    return Aligner("abc", guarantee, alignment, passed=passed)


def test_aligned_inputs_wait_for_the_last_barrier() -> None:
    found = aligner()
    assert found.barrier("a", 1) == Step(begun=True)
    assert found.blocked == {"a"}
    found.barrier("c", 1)
    assert found.blocked == {"a", "c"}
    assert found.barrier("b", 1) == Step(due=True, complete=True)
    assert found.blocked == set()


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE])
def test_nothing_waits_without_exactly_once(guarantee: Guarantee) -> None:
    found = aligner(Alignment.UNALIGNED, guarantee)
    found.barrier("a", 1)
    assert found.blocked == set()
    assert not found.overtaking
    found.barrier("b", 1)
    assert found.barrier("c", 1) == Step(due=True, complete=True)


def test_unaligned_snapshot_is_due_with_the_first_barrier() -> None:
    found = aligner(Alignment.UNALIGNED)
    assert found.barrier("a", 1) == Step(begun=True, due=True)
    assert found.overtaking
    assert found.blocked == set()
    assert found.barrier("b", 1) == Step()
    assert found.barrier("c", 1) == Step(complete=True)
    assert not found.overtaking


def test_alignment_that_takes_too_long_overtakes() -> None:
    found = aligner(Alignment.ALIGNED_WITH_TIMEOUT)
    found.barrier("a", 1)
    assert found.blocked == {"a"}
    assert found.overtake() == Step(due=True)
    assert found.blocked == set()
    assert found.overtake() == Step()
    found.barrier("b", 1)
    assert found.barrier("c", 1) == Step(complete=True)


def test_barrier_that_overtook_makes_the_others_overtake() -> None:
    found = aligner(Alignment.ALIGNED_WITH_TIMEOUT)
    found.barrier("a", 1)
    assert found.barrier("b", 1, unaligned=True) == Step(due=True)


def test_input_that_has_ended_has_passed_every_barrier() -> None:
    found = aligner()
    assert found.ended("b") == Step()
    found.barrier("a", 1)
    assert found.barrier("c", 1) == Step(due=True, complete=True)
    found.barrier("a", 2)
    assert found.ended("c") == Step(due=True, complete=True)


def test_newer_checkpoint_gives_up_the_one_under_way() -> None:
    found = aligner()
    found.barrier("a", 1)
    assert found.barrier("b", 2) == Step(begun=True, given_up=1)
    assert found.blocked == {"b"}
    assert found.barrier("c", 1) == Step()
    found.barrier("a", 2)
    assert found.barrier("c", 2) == Step(due=True, complete=True)


def test_checkpoints_restored_from_or_complete_mean_nothing_any_more() -> None:
    found = aligner(passed=5)
    assert found.barrier("a", 5) == Step()
    assert found.stale(5)
    for source in "abc":
        found.barrier(source, 6)
    assert found.stale(6)
    assert found.barrier("a", 6) == Step()
