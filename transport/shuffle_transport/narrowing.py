"""Blocks of content `arrow` with fewer bytes for their numbers, before a codec sees them (docs/protocol.md).

Columns of integers, dates, times, decimals and offsets are runs of numbers of one width. Most of them lie close to each
other, or rise, and a codec looks for repeats where there is arithmetic. So a run whose numbers need fewer bytes is
stored with those: less the least of them, or each less the one before. The types need not be known: a run is looked at
as numbers of 4, 8 and 16 bytes, at first a sample of it, and the way that takes the fewest bytes is used. What comes
out of `widened` is what went in, byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shuffle_api.buffer import Buffer
from shuffle_api.ipc_messages import buffer_spans

Values: TypeAlias = npt.NDArray[np.integer[Any]]

AS_IT_IS, FRAME, DIFFERENCES = range(3)
NARROW = {1: "<u1", 2: "<u2", 4: "<u4"}
WIDE = {4: "<i4", 8: "<i8"}
DOUBLE = 16
"""Numbers of 16 bytes whose upper half only repeats the sign of the lower."""

_RUN = struct.Struct("<BBBxIqq")
_COUNT = struct.Struct("<I")
_LEAST_BYTES = 512  # of a run that is looked at
_PIECE = 128  # bytes of a run that are looked at, in three places
_LONGS, _INTS = struct.Struct("<48q"), struct.Struct("<96i")
_LEAST_GAIN = 8  # a block must become shorter by this part, else it is not worth the passes


@dataclass(frozen=True, slots=True)
class NumberRun:
    """So many numbers of `width` bytes, stored with `narrow` bytes each; or (kind 0, both 1) bytes as they are."""

    kind: int
    width: int
    narrow: int
    count: int
    least: int = 0
    first: int = 0

    def check(self) -> None:
        """:raises ValueError: there are no such runs."""
        as_it_is = self.kind == AS_IT_IS and self.width == self.narrow == 1
        fewer = self.width in (*WIDE, DOUBLE) and self.narrow in NARROW and 2 * self.narrow <= min(self.width, 8)
        if self.count < 1 or not (as_it_is or (self.kind in (FRAME, DIFFERENCES) and fewer)):
            raise ValueError(
                f"a run of kind {self.kind} has {self.count} numbers of {self.width} bytes in {self.narrow} each"
            )


def narrowed(raw: memoryview) -> memoryview | None:
    """`raw` with fewer bytes; None when it is no block of Arrow's, or has hardly any fewer."""
    runs: list[tuple[NumberRun, Values]] = []
    at = saved = 0
    for begin, end in buffer_spans(raw):
        found = _narrow(raw, begin, end) if end - begin >= _LEAST_BYTES else None
        if found is not None:
            run = found[0]
            if at < begin:
                runs.append(_as_it_is(raw, at, begin))
            runs.append(found)
            at = begin + run.count * run.width
            saved += run.count * (run.width - run.narrow)
    if not runs or saved < len(raw) // _LEAST_GAIN:
        return None
    if at < len(raw):
        runs.append(_as_it_is(raw, at, len(raw)))
    return _joined(runs)


def _as_it_is(raw: memoryview, begin: int, end: int) -> tuple[NumberRun, Values]:
    return NumberRun(AS_IT_IS, 1, 1, end - begin), np.frombuffer(raw, np.uint8, end - begin, begin)


def _joined(runs: list[tuple[NumberRun, Values]]) -> memoryview:
    table = b"".join([_COUNT.pack(len(runs)), *(_RUN.pack(*astuple(run)) for run, _ in runs)])
    whole = memoryview(pa.allocate_buffer(len(table) + sum(run.count * run.narrow for run, _ in runs))).cast("B")
    whole[: len(table)] = table
    at = len(table)
    for run, numbers in runs:
        target = np.frombuffer(whole, NARROW[run.narrow], run.count, at)
        if run.kind == AS_IT_IS:
            target[:] = numbers
        else:
            np.subtract(numbers, run.least, out=target, dtype=np.int64, casting="unsafe")
        at += run.count * run.narrow
    return whole


def widened(data: Buffer, raw_length: int) -> Buffer:
    """What `narrowed` made `data` of, which is `raw_length` bytes.

    :raises ValueError: it made nothing like that; nothing of that length is allocated then.
    """
    view = memoryview(data).cast("B")
    runs = list(_runs(view))
    wide, stored = sum(run.count * run.width for run in runs), sum(run.count * run.narrow for run in runs)
    at = _COUNT.size + len(runs) * _RUN.size
    if wide != raw_length or stored != len(view) - at:
        raise ValueError(f"its runs are {wide} bytes, and {stored} where {len(view) - at} are stored")
    raw = memoryview(pa.allocate_buffer(raw_length))
    target, begin = np.frombuffer(raw, np.uint8), 0
    for run in runs:
        end = begin + run.count * run.width
        _widen(run, np.frombuffer(view, NARROW[run.narrow], run.count, at), target[begin:end])
        at, begin = at + run.count * run.narrow, end
    return raw


def _runs(view: memoryview) -> Iterator[NumberRun]:
    if len(view) < _COUNT.size:
        raise ValueError("it is cut off")
    [count] = _COUNT.unpack_from(view)
    if count * _RUN.size > len(view) - _COUNT.size:
        raise ValueError(f"it says that it has {count} runs")
    for fields in _RUN.iter_unpack(view[_COUNT.size : _COUNT.size + count * _RUN.size]):
        run = NumberRun(*fields)
        run.check()
        yield run


def _widen(run: NumberRun, stored: npt.NDArray[Any], target: npt.NDArray[np.uint8]) -> None:
    if run.kind == AS_IT_IS:
        target[:] = stored
        return
    halves = target.view("<i8").reshape(run.count, 2) if run.width == DOUBLE else None
    numbers = target.view(WIDE[run.width]) if halves is None else halves[:, 0]
    if run.kind == DIFFERENCES:
        steps = np.add(stored, run.least, dtype=np.int64)
        steps[0] = run.first
        np.copyto(numbers, np.cumsum(steps), casting="unsafe")
    else:
        np.add(stored, run.least, out=numbers, dtype=np.int64, casting="unsafe")
    if halves is not None:
        np.right_shift(halves[:, 0], 63, out=halves[:, 1])


def _narrow(raw: memoryview, begin: int, end: int) -> tuple[NumberRun, Values] | None:
    """The numbers from `begin` on in the way that takes the fewest bytes; None if that is as they are."""
    found = _best(*_sample(raw, begin, end))
    if found is None:
        return None
    kind, width = found
    values = _numbers(raw, begin, end, width)
    if values is None:
        return None
    return _fewer(values, kind, width) or (_fewer(values, FRAME, width) if kind == DIFFERENCES else None)


def _sample(raw: memoryview, begin: int, end: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A few numbers of 4 and of 8 bytes, of the beginning, the middle and the end."""
    middle = begin + (end - begin) // (2 * _PIECE) * _PIECE
    last = begin + (end - begin - _PIECE) // DOUBLE * DOUBLE
    data = b"".join([raw[at : at + _PIECE] for at in (begin, middle, last)])
    return _INTS.unpack(data), _LONGS.unpack(data)


def _best(ints: tuple[int, ...], longs: tuple[int, ...]) -> tuple[int, int] | None:
    """The kind and the width of numbers with which a sample takes the fewest bytes; None if that is more than half."""
    samples = [(4, ints), (8, longs)]
    if all(upper == lower >> 63 for lower, upper in zip(longs[::2], longs[1::2], strict=True)):
        samples.append((DOUBLE, longs[::2]))
    best, found = 0.5, None
    for width, numbers in samples:
        third = len(numbers) // 3
        steps = [later - number for number, later in pairwise(numbers[third : 2 * third])]
        for kind, sample in ((FRAME, numbers), (DIFFERENCES, steps)):
            part = _width(min(sample), max(sample)) / width
            if part < best or (part == best and found is None):
                best, found = part, (kind, width)
    return found


def _numbers(raw: memoryview, begin: int, end: int, width: int) -> Values | None:
    """A run as numbers of that width; None where it has none of these."""
    count = (end - begin) // width
    if width != DOUBLE:
        return np.frombuffer(raw, WIDE[width], count, begin)
    halves = np.frombuffer(raw, "<i8", 2 * count, begin).reshape(count, 2)
    return halves[:, 0] if np.array_equal(halves[:, 0] >> 63, halves[:, 1]) else None


def _width(least: int, most: int) -> int:
    """Bytes that all numbers from `least` to `most` take, less `least`; 8 if that is more than 4."""
    spread = most - least
    return 1 if spread < 1 << 8 else 2 if spread < 1 << 16 else 4 if spread < 1 << 32 else 8


def _fewer(values: Values, kind: int, width: int) -> tuple[NumberRun, Values] | None:
    first, numbers = 0, values
    if kind == DIFFERENCES:
        first, numbers = int(values[0]), np.empty(len(values), np.int64)
        np.subtract(values[1:], values[:-1], out=numbers[1:], dtype=np.int64)
        numbers[0] = numbers[1]
    least = int(numbers.min())
    narrow = _width(least, int(numbers.max()))
    if 2 * narrow > min(width, 8):
        return None
    return NumberRun(kind, width, narrow, len(values), least, first), numbers
