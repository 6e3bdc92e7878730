"""Checksums: published vectors, continuation, and the bytes a digest covers."""

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.errors import InvalidArgument
from shuffle_transport.checksum import BLOCK_ROW, crc32c, digest

Table = np.ndarray[Any, np.dtype[np.void]]

RFC_3720_B4 = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
    (
        bytes.fromhex(
            "01c00000 00000000 00000000 00000000 14000000 0000040000000014 00000018 28000000 00000000 02000000 00000000"
        ),
        0xD9963A56,
    ),
]


@pytest.mark.parametrize(("data", "expected"), RFC_3720_B4)
def test_crc32c_matches_rfc_3720(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


def test_crc32c_check_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, pa.py_buffer, lambda b: np.frombuffer(b, np.uint8)])
def test_crc32c_takes_any_buffer(wrap: Callable[[bytes], Any]) -> None:
    assert crc32c(wrap(b"123456789")) == 0xE3069283


@given(st.binary(), st.binary())
def test_crc32c_continues(head: bytes, tail: bytes) -> None:
    assert crc32c(tail, crc32c(head)) == crc32c(head + tail)


def table(*rows: tuple[int, int, int, int, int]) -> Table:
    return np.array(list(rows), BLOCK_ROW)


ROWS = table((1, 0xFFFFFFFF, 10, 20, 3), (2**31 - 1, 7, 2**40, 2**41, 0), (0, 0, 0, 0, 0))


def test_digest_covers_the_32_byte_little_endian_rows() -> None:
    packed = b"".join(struct.pack("<iIqqq", *row.tolist()) for row in ROWS)
    assert len(packed) == 32 * len(ROWS)
    assert digest(ROWS) == crc32c(packed)


@pytest.mark.parametrize("cut", range(len(ROWS) + 1))
def test_digest_continues_wherever_the_table_is_cut(cut: int) -> None:
    assert digest(ROWS[cut:], digest(ROWS[:cut])) == digest(ROWS)


def test_digest_of_a_strided_view_is_that_of_its_rows() -> None:
    assert digest(ROWS[::2]) == digest(ROWS[::2].copy())


def test_digest_depends_on_the_order() -> None:
    assert digest(ROWS[::-1]) != digest(ROWS)


@pytest.mark.parametrize("rows", [np.zeros(4, "<i8"), ROWS.reshape(1, 3), np.zeros(2, [("partition", "<i4")])])
def test_digest_refuses_other_tables(rows: Table) -> None:
    with pytest.raises(InvalidArgument, match="BLOCK_ROW"):
        digest(rows)
