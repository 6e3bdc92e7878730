"""XXH64 of many values at once, in numpy: the hash by which rows find their partition.

The algorithm is XXH64 as its specification has it (github.com/Cyan4973/xxHash, doc/xxhash_spec.md), with a seed per
value: so the hash of a row is the hash of its last column, seeded with that of the column before. The result depends
on the values alone: the same on every machine, in every process and every run, whatever PYTHONHASHSEED says.

All arithmetic is modulo 2**64, little endian.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

U64: TypeAlias = npt.NDArray[np.uint64]
I64: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

P1, P2, P3, P4, P5 = (
    np.uint64(prime)
    for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)

_P1_P2 = np.uint64((int(P1) + int(P2)) % 2**64)

LONG = 1024
"""Values of more bytes than this are replaced by their 8-byte BLAKE2b digest before they are hashed."""


PIECE = 12 << 10
"""Values that are hashed at once: what is made on the way stays in the caches, and in memory that is there already."""


def hash_words(values: U64, seeds: U64) -> U64:
    """XXH64 of 8-byte values."""
    return _by_piece(_eight, 8, values, seeds)


def hash_half_words(values: npt.NDArray[np.uint32], seeds: U64) -> U64:
    """XXH64 of 4-byte values."""
    return _by_piece(_four, 4, values, seeds)


def _by_piece(step: Callable[[U64, U64], U64], size: int, values: npt.NDArray[Any], seeds: U64) -> U64:
    hashes = np.empty(len(values), np.uint64)
    start = P5 + np.uint64(size)
    for at in range(0, len(values), PIECE):
        piece = slice(at, at + PIECE)
        hashes[piece] = _finish(step(seeds[piece] + start, values[piece].astype(np.uint64, copy=False)))
    return hashes


def hash_bytes(data: Bytes, starts: I64, lengths: I64, seeds: U64) -> U64:
    """XXH64 of the texts `data[starts[i] : starts[i] + lengths[i]]`; above LONG bytes, of their digests."""
    long = np.flatnonzero(lengths > LONG)
    if not len(long):
        return _texts(data, starts, lengths, seeds)
    digests = b"".join(
        blake2b(data[starts[i] : starts[i] + lengths[i]].data, digest_size=8).digest() for i in long.tolist()
    )
    hashes = np.empty(len(starts), np.uint64)
    hashes[long] = hash_words(np.frombuffer(digests, "<u8").astype(np.uint64), seeds[long])
    short = np.flatnonzero(lengths <= LONG)
    hashes[short] = _texts(data, starts[short], lengths[short], seeds[short])
    return hashes


def _texts(data: Bytes, starts: I64, lengths: I64, seeds: U64) -> U64:
    """Step by step for all texts at once; a step is for those that are long enough for it."""
    words = _windows(data, "<u8")
    accumulator = seeds + P5
    ends, at = starts + lengths, starts.copy()
    rows = np.flatnonzero(lengths >= 32)
    if len(rows):
        accumulator[rows] = _stripes(words, starts[rows], lengths[rows], seeds[rows])
        at[rows] += lengths[rows] & ~31
    accumulator += lengths.astype(np.uint64)
    for _ in range(3):
        rows = np.flatnonzero(ends - at >= 8)
        if len(rows):
            accumulator[rows] = _eight(accumulator[rows], words[at[rows]].astype(np.uint64))
            at[rows] += 8
    rows = np.flatnonzero(ends - at >= 4)
    if len(rows):
        halves = _windows(data, "<u4")
        accumulator[rows] = _four(accumulator[rows], halves[at[rows]].astype(np.uint64))
        at[rows] += 4
    for _ in range(3):
        rows = np.flatnonzero(ends > at)
        if len(rows):
            accumulator[rows] = _rotated(accumulator[rows] ^ (data[at[rows]].astype(np.uint64) * P5), 11) * P1
            at[rows] += 1
    return _finish(accumulator)


def _stripes(words: npt.NDArray[np.uint64], starts: I64, lengths: I64, seeds: U64) -> U64:
    """What the whole stripes of 32 bytes come to; every text has one at least."""
    lanes = [seeds + _P1_P2, seeds + P2, seeds.copy(), seeds - P1]
    stripes = lengths // 32
    for stripe in range(int(stripes.max())):
        rows = np.flatnonzero(stripes > stripe)
        base = starts[rows] + 32 * stripe
        for number, lane in enumerate(lanes):
            lane[rows] = _round(lane[rows], words[base + 8 * number].astype(np.uint64))
    merged = np.zeros_like(lengths, np.uint64)
    for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True):
        merged += _rotated(lane.copy(), bits)
    for lane in lanes:
        merged = (merged ^ _round(np.zeros_like(lane), lane)) * P1 + P4
    return merged


def _windows(data: Bytes, kind: str) -> npt.NDArray[np.uint64]:
    """An integer at each byte of `data`, unaligned and overlapping: nothing is copied."""
    size = np.dtype(kind).itemsize
    windows: npt.NDArray[np.uint64] = np.ndarray((max(0, len(data) - size + 1),), kind, buffer=data.data, strides=(1,))
    return windows


def _round(lane: U64, words: U64) -> U64:
    return _rotated(lane + words * P2, 31) * P1


# These change what they are given, and return it: an array less for every step.


def _eight(accumulator: U64, words: U64) -> U64:
    accumulator ^= _rotated(words * P2, 31) * P1
    accumulator = _rotated(accumulator, 27)
    accumulator *= P1
    accumulator += P4
    return accumulator


def _four(accumulator: U64, halves: U64) -> U64:
    accumulator ^= halves * P1
    accumulator = _rotated(accumulator, 23)
    accumulator *= P2
    accumulator += P3
    return accumulator


def _rotated(values: U64, bits: int) -> U64:
    low = values >> np.uint64(64 - bits)
    values <<= np.uint64(bits)
    values |= low
    return values


def _finish(hashes: U64) -> U64:
    hashes ^= hashes >> np.uint64(33)
    hashes *= P2
    hashes ^= hashes >> np.uint64(29)
    hashes *= P3
    hashes ^= hashes >> np.uint64(32)
    return hashes
