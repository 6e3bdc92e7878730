"""Rows in another order: what Arrow's own take gives, also where texts are all equally long and go another way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffle_api.columnar.arrays import MOST_TEXT, taken

TEXTS = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


@st.composite
def columns(draw: st.DrawFn) -> Any:
    """Texts of one length or of any, a slice of them, with nulls or not."""
    kind, length = draw(st.sampled_from(TEXTS)), draw(st.integers(0, 9))
    least = draw(st.sampled_from([0, length]))
    text = st.text("abcd", min_size=least, max_size=length)
    values = draw(st.lists(st.one_of(text, st.none()) if draw(st.booleans()) else text, max_size=30))
    begin = draw(st.integers(0, len(values)))
    return pa.array(values, pa.string()).cast(kind).slice(begin, draw(st.integers(0, len(values) - begin)))


def kinds_taken(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The types of what Arrow is asked to take from now on."""
    kinds, take = [], pc.take

    def noting(column: Any, *given: Any, **named: Any) -> Any:
        kinds.append(column.type)
        return take(column, *given, **named)

    monkeypatch.setattr(pc, "take", noting)
    return kinds


@settings(max_examples=500, deadline=None)
@given(columns(), st.data())
def test_rows_are_those_that_arrow_takes(column: Any, data: st.DataObject) -> None:
    batch = pa.record_batch([column, pa.array(range(len(column)))], ["s", "n"])
    rows = st.lists(st.integers(0, len(column) - 1), max_size=60) if len(column) else st.just([])
    order = np.array(data.draw(rows), np.int64)
    found = taken(batch, order)
    found.validate(full=True)
    assert found.equals(batch.take(pa.array(order)))


def test_texts_of_one_length_are_moved_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = kinds_taken(monkeypatch)
    batch = pa.record_batch({"equal": ["abc", "def"], "other": ["abc", "de"], "null": ["abc", None], "empty": ["", ""]})
    assert taken(batch, np.array([1, 0])).to_pylist() == batch.to_pylist()[::-1]
    assert kinds == [pa.binary(3), pa.string(), pa.string(), pa.string()]


def test_more_texts_than_offsets_can_reach_are_left_to_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MOST_TEXT, 4, 8)
    kinds = kinds_taken(monkeypatch)
    batch = pa.record_batch({"s": ["abc", "def"]})
    assert taken(batch, np.array([1, 0, 0])).num_rows == 3
    assert taken(batch, np.array([1, 0])).num_rows == 2
    assert kinds == [pa.string(), pa.binary(3)]
