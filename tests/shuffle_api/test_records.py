"""Record framing: exactly the protocol's bytes, and damage is found."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.errors import BlockCorrupt
from shuffle_api.records import frame, pack_records, unpack_records


def test_a_record_is_its_length_in_little_endian_and_its_bytes() -> None:
    assert pack_records([b"ab", b"", b"c"]) == b"\2\0\0\0ab" + b"\0\0\0\0" + b"\1\0\0\0c"


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_unpacking_gives_back_what_was_packed(records: list[bytes]) -> None:
    assert list(unpack_records(pack_records(records))) == records


def test_length_counts_bytes_of_wider_items() -> None:
    wide = memoryview(b"abcdefgh").cast("I")
    assert frame(wide) == b"\x08\0\0\0abcdefgh"
    assert list(unpack_records(memoryview(pack_records([wide])).cast("I"))) == [b"abcdefgh"]


def test_strided_view_is_framed_as_its_items() -> None:
    assert frame(memoryview(b"a-b-c-")[::2]) == b"\3\0\0\0abc"


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=10), st.integers(min_value=1))
def test_payload_cut_short_yields_whole_records_and_then_is_corrupt(records: list[bytes], cut: int) -> None:
    whole = pack_records(records)
    part = whole[: cut % len(whole)]
    fits = [n for n in range(len(records) + 1) if len(pack_records(records[:n])) <= len(part)][-1]
    got: list[bytes] = []
    with pytest.raises(BlockCorrupt) if len(pack_records(records[:fits])) < len(part) else nullcontext():
        got.extend(unpack_records(part))
    assert got == records[:fits]


@pytest.mark.parametrize("payload", [b"\1", b"\0\0\0", b"\5\0\0\0abcd", b"\xff\xff\xff\xffabc"])
def test_length_that_points_outside_is_corrupt(payload: bytes) -> None:
    with pytest.raises(BlockCorrupt, match="byte 0"):
        list(unpack_records(payload))
