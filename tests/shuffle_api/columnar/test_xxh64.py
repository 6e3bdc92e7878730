"""XXH64 in numpy against published values and against the specification written down value by value."""

from __future__ import annotations

import struct
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.columnar.xxh64 import LONG, hash_bytes, hash_half_words, hash_words

MASK = 2**64 - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & MASK


def one_round(lane: int, word: int) -> int:
    return rotated((lane + word * P2) & MASK, 31) * P1 & MASK


def xxh64(data: bytes, seed: int) -> int:
    """The specification, step by step (doc/xxhash_spec.md of the xxHash project)."""
    at = 0
    if len(data) >= 32:
        lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        while at + 32 <= len(data):
            words = struct.unpack_from("<4Q", data, at)
            lanes = [one_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
            at += 32
        result = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            result = ((result ^ one_round(0, lane)) * P1 + P4) & MASK
    else:
        result = (seed + P5) & MASK
    result = (result + len(data)) & MASK
    while at + 8 <= len(data):
        result = (rotated(result ^ one_round(0, struct.unpack_from("<Q", data, at)[0]), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= len(data):
        result = (rotated(result ^ (struct.unpack_from("<I", data, at)[0] * P1 & MASK), 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        result = rotated(result ^ (byte * P5 & MASK), 11) * P1 & MASK
    result = (result ^ (result >> 33)) * P2 & MASK
    result = (result ^ (result >> 29)) * P3 & MASK
    return result ^ (result >> 32)


def hashes(texts: list[bytes], seeds: list[int]) -> list[int]:
    data = np.frombuffer(b"".join(texts), np.uint8)
    lengths = np.array([len(text) for text in texts], np.int64)
    found: list[int] = hash_bytes(data, np.cumsum(lengths) - lengths, lengths, np.array(seeds, np.uint64)).tolist()
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_published_values(text: bytes, expected: int) -> None:
    assert hashes([text], [0]) == [expected] == [xxh64(text, 0)]


SEEDS = st.integers(0, MASK)


@given(st.lists(st.tuples(st.binary(max_size=150), SEEDS), max_size=20))
def test_bytes_are_hashed_as_the_specification_says(rows: list[tuple[bytes, int]]) -> None:
    texts, seeds = [text for text, _ in rows], [seed for _, seed in rows]
    assert hashes(texts, seeds) == [xxh64(text, seed) for text, seed in rows]


@pytest.mark.parametrize("length", [*range(70), 255, 256, 1023, LONG])
def test_every_length(length: int) -> None:
    text = bytes(range(256)) * 4
    assert hashes([b"x", text[:length], b"y"], [1, 2, 3])[1] == xxh64(text[:length], 2)


def test_long_texts_are_hashed_by_their_digest_among_short_ones() -> None:
    long = bytes(range(256)) * 5
    digest = blake2b(long, digest_size=8).digest()
    assert hashes([b"a", long, b"bc"], [7, 8, 9]) == [xxh64(b"a", 7), xxh64(digest, 8), xxh64(b"bc", 9)]


@given(st.lists(st.tuples(SEEDS, SEEDS), min_size=1, max_size=20))
def test_words_are_hashed_as_their_bytes(rows: list[tuple[int, int]]) -> None:
    values, seeds = (np.array(column, np.uint64) for column in zip(*rows, strict=True))
    assert hash_words(values, seeds).tolist() == [xxh64(struct.pack("<Q", value), seed) for value, seed in rows]
    halves = values.astype(np.uint32)
    expected = [xxh64(struct.pack("<I", value & 0xFFFFFFFF), seed) for value, seed in rows]
    assert hash_half_words(halves, seeds).tolist() == expected
