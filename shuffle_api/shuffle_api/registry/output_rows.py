"""The committed outputs of one shuffle, each as a row of numbers: ten million objects would fill any memory."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import MapAttempt
from shuffle_api.values import MapOutput, Totals

Place: TypeAlias = tuple[str, ...]
"""The workers that hold an output, the one to ask first in front."""

_ROW = struct.Struct("<qQQQII")  # attempt, bytes, raw bytes, records, blocks, digest
_SIZES = np.dtype({"names": ["bytes"], "formats": ["<u8"], "offsets": [8], "itemsize": _ROW.size})
_PAGE_BITS = 6
_IN_PAGE = (1 << _PAGE_BITS) - 1
_NONE, _LOST = -1, -2  # instead of the number of a row
_LARGEST = _NOBODY = (1 << 32) - 1  # the latter instead of the number of a worker
_UNUSED = (1 << 64) - 1  # nobody and nobody


class RegistryNumbers:
    """Numbers for the names in a registry and in its copies, given as they come: a worker that is gone keeps its own.
    Thread-safe, as the copies are used by other threads.

    :ivar names: of the workers, by number.
    :ivar shuffles: the next number of a shuffle.
    :ivar versions: the next version of a shuffle's outputs.
    """

    __slots__ = ("_next", "_workers", "names", "shuffles", "versions")

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._workers: dict[str, int] = {}
        self._next, self.shuffles, self.versions = count(), count(1), count(1)

    def of(self, worker: str) -> int:
        """A worker's number, a new one if it has none."""
        number = self._workers.get(worker)
        if number is None:
            number = next(self._next)
            self.names[number] = worker  # before others find the number; one that another thread was faster with stays
            number = self._workers.setdefault(worker, number)
        return number

    def find(self, worker: str) -> int:
        """A worker's number, or that of nobody."""
        return self._workers.get(worker, _NOBODY)


class OutputPage:
    """Some outputs as they were, ascending by map: taken in a fraction of the time in which objects are made of them.

    :ivar lost: maps among them whose output is lost.
    :ivar following: the map that the next page begins with, None after the last.
    """

    __slots__ = ("following", "lost", "rows")

    def __init__(self) -> None:
        self.rows: list[tuple[int, Place, bytearray]] = []  # map, place and the packed numbers
        self.lost: list[int] = []
        self.following: int | None = None

    def workers(self) -> list[str]:
        """Those that hold the outputs, in the order in which they come."""
        places = dict.fromkeys(place for _, place, _ in self.rows)
        return list(dict.fromkeys(worker for place in places for worker in place))

    def numbers(self) -> Iterator[tuple[int, Place, int, int, int, int, int, int]]:
        """Of each output its map, its place, its attempt, bytes, raw bytes, records, blocks and digest."""
        return ((map, place, *_ROW.unpack(packed)) for map, place, packed in self.rows)

    def outputs(self) -> list[MapOutput]:
        """As objects."""
        return [_output(*row) for row in self.rows]


def _output(map: int, place: Place, packed: bytearray) -> MapOutput:
    attempt, size, raw_bytes, records, blocks, digest = _ROW.unpack(packed)
    return MapOutput(MapAttempt(map, attempt), place[0], Totals(blocks, size, raw_bytes, records, digest), place[1:])


class OutputRows:
    """By map number; ascending where they are gone through.

    A row takes 48 bytes and its number 4, where maps are numbered densely; a map far from all others takes 300 more.
    Those that lie at a worker are found by a look at one column, 4 bytes of each row.

    :ivar missing: how many maps had an output that was lost, and have none since.
    :ivar version: another one after each change, no other shuffle of the registry has it; 0: there was none.
    """

    __slots__ = (
        "_counts",
        "_free",
        "_holders",
        "_maps",
        "_more",
        "_pages",
        "_rows",
        "_seconds",
        "_starts",
        "_workers",
        "missing",
        "numbers",
        "version",
    )

    def __init__(self, numbers: RegistryNumbers | None = None) -> None:
        self.numbers = RegistryNumbers() if numbers is None else numbers
        self._rows = bytearray()
        self._maps, self._workers = array("I"), array("I")  # of each row; the worker to ask first
        self._seconds = array("I")  # the second worker of each row, from the first output on that has one
        self._more: dict[int, Place] = {}  # those after the second
        self._free: list[int] = []  # rows that are in use no more
        self._pages: dict[int, array[int]] = {}  # numbers of rows, by map
        self._starts: list[int] = []  # of these pages, ascending
        self._holders, self._counts = array("I"), array("I")  # workers, ascending, and how many outputs each holds
        self.missing = self.version = 0

    def __len__(self) -> int:
        return len(self._maps) - len(self._free)

    def __contains__(self, map: int) -> bool:
        return self._row(map) >= 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OutputRows):
            return NotImplemented
        if (len(self), self.missing) != (len(other), other.missing):
            return False
        return all(one == two for one, two in zip(self.values(), other.values(), strict=True))

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> OutputRows:
        """An equal one that shares nothing that changes but the numbers of workers."""
        copy = OutputRows(self.numbers)
        copy._rows, copy._maps, copy._workers = self._rows[:], self._maps[:], self._workers[:]
        copy._seconds, copy._more = self._seconds[:], dict(self._more)
        copy._free, copy._starts = self._free[:], self._starts[:]
        copy._pages = {start: page[:] for start, page in self._pages.items()}
        copy._holders, copy._counts = self._holders[:], self._counts[:]
        copy.missing, copy.version = self.missing, self.version
        return copy

    def is_copy_of(self, other: OutputRows) -> bool:
        """Whether both hold the same rows at the same places. Compares memory, makes no objects."""
        return self.numbers is other.numbers and all(
            getattr(self, name) == getattr(other, name)
            for name in ("missing", "_maps", "_workers", "_seconds", "_more", "_free", "_rows", "_pages")
        )

    def get(self, map: int) -> MapOutput | None:
        """The output of a map."""
        page = self._pages.get(map >> _PAGE_BITS)
        return None if page is None or (row := page[map & _IN_PAGE]) < 0 else self._output(row)

    def put(self, output: MapOutput) -> None:
        """The output of its map from now on. Changes nothing when it raises.

        :raises InvalidArgument: a number of its totals is negative, or does not fit: into 64 bits, of blocks and digest
            into 32.
        """
        attempt, totals = output.output, output.totals
        try:
            packed = _ROW.pack(
                attempt.attempt, totals.bytes, totals.raw_bytes, totals.records, totals.blocks, totals.digest
            )
        except struct.error as error:
            raise InvalidArgument(
                f"{totals} cannot be recorded: {error}",
                remedy="bytes and records are below 2**64, blocks and digest below 2**32",
            ) from error
        map, worker = attempt.map, self.numbers.of(output.worker)
        if not self._add(map, worker, packed):
            self.version = next(self.numbers.versions)
            page = self._pages[map >> _PAGE_BITS]
            row = page[map & _IN_PAGE]
            if row < 0:
                row = self._take_row(page, map)
            else:
                self._clear(row)
            self._rows[row * _ROW.size : (row + 1) * _ROW.size] = packed
            self._maps[row], self._workers[row] = map, worker
            self._count(worker, 1)
        if output.copies:
            self._put_copies(self._row(map), output.copies)

    def add(self, map: int, attempt: int, worker: int, totals: Sequence[int]) -> bool:
        """The output of a map that never had one, without objects. False, and nothing has changed, for another map, or
        numbers that `put` or MapAttempt refuse.

        :param worker: its number.
        :param totals: blocks, bytes, raw bytes, records, digest.
        """
        blocks, size, raw_bytes, records, digest = totals
        if map < 0 or attempt < 0:
            return False
        try:
            return self._add(map, worker, _ROW.pack(attempt, size, raw_bytes, records, blocks, digest))
        except struct.error:
            return False

    def lose(self, map: int) -> None:
        """A map that has an output has none from now on."""
        self.version = next(self.numbers.versions)
        page = self._pages[map >> _PAGE_BITS]
        row = page[map & _IN_PAGE]
        page[map & _IN_PAGE] = _LOST
        self.missing += 1
        self._clear(row)
        self._free.append(row)

    def maps(self, first: int = 0, end: int | None = None) -> Iterator[int]:
        """The maps of [first, end) that have an output, or had one that was lost, ascending."""
        return (map for map, _ in self._numbered(first, end))

    def page(self, first: int, end: int | None, limit: int | None) -> OutputPage:
        """Up to `limit` maps of [first, end) that have an output, or had one that was lost."""
        page, found, places, packed = OutputPage(), 0, dict[int, Place](), self._packed
        for map, row in self._numbered(first, end):
            if found == limit:
                page.following = map
                break
            found += 1
            if row < 0:
                page.lost.append(map)
                continue
            worker = self._workers[row]
            place = self._place(row) if self._seconds else places.get(worker)
            if place is None:
                place = places[worker] = self._place(row)
            page.rows.append((map, place, packed(row)))
        return page

    def values(self) -> Iterator[MapOutput]:
        """All outputs, ascending by map."""
        return (found for map in self.maps() if (found := self.get(map)) is not None)

    def held_by(self, worker: str, first: int = 0, limit: int | None = None) -> list[MapOutput]:
        """The outputs that lie at a worker, there alone or there too: up to `limit`, from number `first` on."""
        end = None if limit is None else first + limit
        return [self._output(row) for row in self._rows_at(self.numbers.find(worker))[first:end].tolist()]

    def held_of(self, worker: str, first: int, end: int) -> list[MapOutput]:
        """Those of the maps [first, end)."""
        rows = self._rows_at(self.numbers.find(worker))
        maps = self._maps_of(rows)
        return list(map(self._output, rows[(maps >= first) & (maps < end)].tolist()))

    def range_at(self, worker: str, limit: int) -> tuple[int, int]:
        """Maps [first, end), the lowest of which outputs lie at a worker that holds any: `limit` outputs, which is at
        least 1, or all there are."""
        maps = self._maps_of(self._rows_at(self.numbers.find(worker)))
        last = maps.max() if len(maps) <= limit else np.partition(maps, limit - 1)[limit - 1]
        return int(maps.min()), int(last) + 1

    def count_at(self, worker: str) -> int:
        """How many lie at a worker."""
        at, found = self._holder(self.numbers.find(worker))
        return self._counts[at] if found else 0

    def workers(self) -> list[str]:
        """Those that hold an output, in no particular order."""
        return [self.numbers.names[each] for each in self._holders]

    def amounts(self) -> dict[Place, tuple[int, int]]:
        """How many outputs, and how many bytes, lie at each place."""
        found: dict[Place, tuple[int, int]] = {}
        if not self._maps:
            return found
        sizes = np.frombuffer(self._rows, _SIZES)["bytes"]
        pairs = np.frombuffer(self._workers, np.uint32).astype(np.uint64) << 32
        pairs |= np.frombuffer(self._seconds, np.uint32) if self._seconds else _NOBODY
        for row in self._more:
            place = self._place(row)
            outputs, size = found.get(place, (0, 0))
            found[place] = outputs + 1, size + int(sizes[row])
            pairs[row] = _UNUSED
        order = np.argsort(pairs, kind="stable")
        numbers, starts, counts = np.unique(pairs[order], return_index=True, return_counts=True)
        sums = np.add.reduceat(sizes[order], starts)
        for number, outputs, size in zip(numbers.tolist(), counts.tolist(), sums.tolist(), strict=True):
            if number != _UNUSED:
                found[self._names(*divmod(number, 1 << 32))] = outputs, size
        return found

    def _numbered(self, first: int, end: int | None) -> Iterator[tuple[int, int]]:
        """The maps of [first, end) with their rows, or with the mark of a loss, ascending."""
        for number in range(bisect_left(self._starts, first >> _PAGE_BITS), len(self._starts)):
            start = self._starts[number]
            for map, row in enumerate(self._pages[start], start << _PAGE_BITS):
                if row == _NONE or map < first:
                    continue
                if end is not None and map >= end:
                    return
                yield map, row

    def _output(self, row: int) -> MapOutput:
        return _output(self._maps[row], self._place(row), self._packed(row))

    def _packed(self, row: int) -> bytearray:
        return self._rows[row * _ROW.size : (row + 1) * _ROW.size]

    def _place(self, row: int) -> Place:
        place = self._names(self._workers[row], self._seconds[row] if self._seconds else _NOBODY)
        return place + self._more[row] if row in self._more else place

    def _names(self, first: int, second: int) -> Place:
        names = self.numbers.names
        return (names[first],) if second == _NOBODY else (names[first], names[second])

    def _row(self, map: int) -> int:
        page = self._pages.get(map >> _PAGE_BITS)
        return _NONE if page is None else page[map & _IN_PAGE]

    def _new_page(self, map: int) -> array[int]:
        start = map >> _PAGE_BITS
        page = self._pages[start] = array("i", (_NONE,)) * (1 << _PAGE_BITS)
        if self._starts and start < self._starts[-1]:
            insort(self._starts, start)
        else:
            self._starts.append(start)
        if map > _LARGEST and self._maps.typecode == "I":
            self._maps = array("q", self._maps)
        return page

    def _take_row(self, page: array[int], map: int) -> int:
        """For a map without an output, of which some, of this map or others, were lost."""
        self.missing -= page[map & _IN_PAGE] == _LOST
        if not self._free:
            self._free.append(len(self._maps))
            self._rows += bytes(_ROW.size)
            self._maps.append(map)
            self._workers.append(_NOBODY)
            if self._seconds:
                self._seconds.append(_NOBODY)
        row = page[map & _IN_PAGE] = self._free.pop()
        return row

    def _put_copies(self, row: int, copies: Place) -> None:
        if not self._seconds:
            self._seconds = array("I", (_NOBODY,)) * len(self._maps)
        self._seconds[row] = self.numbers.of(copies[0])
        if copies[1:]:
            self._more[row] = copies[1:]
        for each in copies:
            self._count(self.numbers.of(each), 1)

    def _add(self, map: int, worker: int, packed: bytes) -> bool:
        """In a row behind all others: nearly always. False where the map has or had an output, or rows are free."""
        page = self._pages.get(map >> _PAGE_BITS)
        if page is None:
            page = self._new_page(map)
        if self._free or page[map & _IN_PAGE] != _NONE:
            return False
        self.version = next(self.numbers.versions)
        page[map & _IN_PAGE] = len(self._maps)
        self._rows += packed
        self._maps.append(map)
        self._workers.append(worker)
        if self._seconds:
            self._seconds.append(_NOBODY)
        self._count(worker, 1)
        return True

    def _clear(self, row: int) -> None:
        """Nothing lies at a row any more."""
        self._count(self._workers[row], -1)
        self._workers[row] = _NOBODY
        if self._seconds and (second := self._seconds[row]) != _NOBODY:
            self._count(second, -1)
            self._seconds[row] = _NOBODY
            for worker in self._more.pop(row, ()):
                self._count(self.numbers.of(worker), -1)

    def _holder(self, worker: int) -> tuple[int, bool]:
        at = bisect_left(self._holders, worker)
        return at, at < len(self._holders) and self._holders[at] == worker

    def _count(self, worker: int, more: int) -> None:
        holders, counts = self._holders, self._counts
        at = bisect_left(holders, worker)
        if at == len(holders) or holders[at] != worker:
            holders.insert(at, worker)
            counts.insert(at, more)
        elif counts[at] == -more:
            del holders[at], counts[at]
        else:
            counts[at] += more

    def _maps_of(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.integer[Any]]:
        return np.frombuffer(self._maps, np.dtype(self._maps.typecode))[rows]

    def _rows_at(self, worker: int) -> npt.NDArray[np.intp]:
        if not self._holder(worker)[1]:
            return np.empty(0, np.intp)
        found = np.frombuffer(self._workers, np.uint32) == worker
        if self._seconds:
            found |= np.frombuffer(self._seconds, np.uint32) == worker
            name = self.numbers.names[worker]
            found[[row for row, others in self._more.items() if name in others]] = True
        return np.flatnonzero(found)
