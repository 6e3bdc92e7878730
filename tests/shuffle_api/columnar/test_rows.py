"""Rows of one size, framed as records and looked at again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.columnar.rows import frame_rows, rows_of
from shuffle_api.errors import BlockCorrupt, InvalidArgument
from shuffle_api.records import pack_records, unpack_records

PAIR = np.dtype([("number", "<i8"), ("text", "S5")])


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=5))))
def test_rows_are_records_and_come_back(values: list[tuple[int, bytes]]) -> None:
    rows = np.array(values, PAIR)
    payload = frame_rows(rows)
    assert list(unpack_records(payload)) == [row.tobytes() for row in rows]
    assert rows_of(payload, PAIR).tolist() == rows.tolist()


def test_rows_are_a_read_only_view() -> None:
    payload = bytearray(frame_rows(np.array([1, 2], "<i4")))
    rows = rows_of(payload, np.dtype("<i4"))
    payload[4] = 9
    assert rows.tolist() == [9, 2]
    with pytest.raises(ValueError, match="read-only"):
        rows[0] = 3


def test_every_other_row_can_be_framed() -> None:
    assert rows_of(frame_rows(np.arange(6)[::2]), np.dtype("<i8")).tolist() == [0, 2, 4]


def test_records_of_other_sizes_are_refused_by_number() -> None:
    with pytest.raises(BlockCorrupt, match="record 1 is 3 bytes long, a row is 4"):
        rows_of(pack_records([b"four", b"new", b"fives"]), np.dtype("<i4"))
    with pytest.raises(BlockCorrupt, match="7 bytes does not hold records of 4 bytes"):
        rows_of(pack_records([b"new"]), np.dtype("<i4"))


@pytest.mark.parametrize("rows", [np.array([object()]), np.empty(3, np.dtype([])), np.zeros((2, 2))])
def test_what_has_no_rows_is_refused(rows: np.ndarray) -> None:
    with pytest.raises(InvalidArgument):
        frame_rows(rows)
