"""The watermark of several inputs: the least of them, never falling, idle inputs left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.streaming import Watermarks


def test_watermark_is_the_least_of_all_inputs() -> None:
    marks = Watermarks(["a", "b"])
    assert marks.advance("a", 10) is None  # b has said nothing
    assert marks.advance("b", 4) == 4
    assert marks.advance("b", 12) == 10
    assert marks.advance("a", 11) == 11


def test_late_watermark_of_an_input_means_nothing() -> None:
    marks = Watermarks(["a"])
    assert marks.advance("a", 10) == 10
    assert marks.advance("a", 7) is None
    assert marks.current == 10


def test_idle_input_holds_nothing_back_until_it_is_active_again() -> None:
    marks = Watermarks(["a", "b"])
    marks.advance("a", 10)
    assert marks.idle("b") == 10
    marks.active("b")
    assert marks.advance("a", 20) is None
    assert marks.advance("b", 15) == 15


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_when_all_are_idle_it_is_the_highest_whichever_fell_idle_first(order: str) -> None:
    marks = Watermarks("ab")
    marks.advance("a", 1)
    marks.advance("b", 2)
    for source in order:
        marks.idle(source)
    assert marks.current == 2
    marks.active("a")
    assert marks.advance("a", 3) == 3


def test_an_idle_input_beside_one_that_has_ended_is_not_the_end() -> None:
    marks = Watermarks(["a", "b", "c"])
    marks.advance("a", 1)
    marks.advance("b", 5)
    marks.idle("c")
    assert marks.current == 1
    marks.ended("b")
    assert marks.idle("a") == 5
    assert marks.advance("a", 7) == 7
    marks.ended("c")
    assert marks.ended("a") == 2**63 - 1


def test_inputs_that_have_ended_hold_nothing_back() -> None:
    marks = Watermarks(["a", "b"])
    assert marks.ended("a") is None
    assert marks.advance("b", 3) == 3
    assert marks.ended("b") == 2**63 - 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-50, 50)), max_size=40))
def test_it_equals_the_least_of_the_highest(steps: list[tuple[str, int]]) -> None:
    marks, best = Watermarks("abc"), dict[str, int]()
    for source, time in steps:
        marks.advance(source, time)
        best[source] = max(best.get(source, time), time)
        assert marks.current == (min(best.values()) if len(best) == 3 else None)
