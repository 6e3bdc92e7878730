"""The records of a job, which name where they come from, and what is wrong with those that were read.

The law: a read yields, of each map, what one attempt of this run and this shuffle wrote, each record once and those of
a partition in the order written; and that attempt is one whose commit was asked for and never refused.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from shuffle_transport.checksum import crc32c

TAG = struct.Struct("<IIIIII")
"""Run, shuffle, map, attempt, number within the attempt, partition."""
SUM = struct.Struct("<I")
SHOWN = 3

Record: TypeAlias = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class Source:
    """Who writes: one attempt of a map of a shuffle of a run. `shuffle` counts the job's shuffles, ids aside."""

    run: int
    shuffle: int
    map: int
    attempt: int

    def __str__(self) -> str:
        return f"run {self.run} shuffle {self.shuffle} map {self.map} attempt {self.attempt}"


@dataclass(frozen=True, slots=True)
class Size:
    """Of an attempt's output."""

    partitions: int
    records: int
    size: int


def written(source: Source, size: Size) -> Iterator[Record]:
    """What an attempt writes, in order. Attempts of a map write different bytes, so that it shows whose they are."""
    for number in range(size.records):
        partition = (number * 7 + source.map) % size.partitions
        tag = TAG.pack(source.run, source.shuffle, source.map, source.attempt, number, partition)
        body = tag + bytes((number + source.attempt) & 0xFF for _ in range(number % (size.size + 1)))
        yield partition, body + SUM.pack(crc32c(body))


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong: one of `KINDS`, and the records in words."""

    kind: str
    what: str


KINDS = ("lost", "repeated", "mixed", "reordered", "foreign", "damaged", "refused")


def attempts_in(records: Iterable[Record]) -> dict[int, int]:
    """The attempt that each map's records are of; of several the lowest."""
    found: dict[int, int] = {}
    for _, record in records:
        if len(record) >= TAG.size:
            _, _, map, attempt, _, _ = TAG.unpack_from(record)
            found[map] = min(found.get(map, attempt), attempt)
    return found


def problems(
    records: Sequence[Record], run: int, shuffle: int, size: Size, partitions: range, allowed: Mapping[int, set[int]]
) -> list[Problem]:
    """What is wrong with a whole read of `partitions`; `allowed` are the attempts of each map that may have won."""
    found: list[Problem] = []
    by_map: dict[int, list[tuple[Source, int, int]]] = {map: [] for map in allowed}
    for partition, record in records:
        source, number, said = _parse(record)
        if source is None or said != partition:
            found.append(Problem("damaged", f"partition {partition}: {record[:40]!r}"))
        elif (source.run, source.shuffle) != (run, shuffle) or source.map not in allowed:
            found.append(Problem("foreign", f"in run {run} shuffle {shuffle}: a record of {source}"))
        else:
            by_map[source.map].append((source, number, partition))
    for map, ours in by_map.items():
        attempts = {source.attempt for source, _, _ in ours}
        if len(attempts) > 1:
            found.append(Problem("mixed", f"map {map}: attempts {sorted(attempts)} in one read"))
        for attempt in attempts - allowed[map]:
            found.append(
                Problem("refused", f"map {map}: attempt {attempt} is read, of {sorted(allowed[map])} it was asked")
            )
        for attempt in sorted(attempts)[:1] or [min(allowed[map], default=0)]:
            of_it = [(number, partition) for source, number, partition in ours if source.attempt == attempt]
            found += _sequence(Source(run, shuffle, map, attempt), of_it, size, partitions)
    return _few(found)


def maps_out_of_order(got: Sequence[Record]) -> list[Problem]:
    """Whether a reader of one partition, to whom maps come in their order, had a record of one after a later one's."""
    maps = [source.map for source, _, _ in (_parse(record) for _, record in got) if source is not None]
    pairs = [(before, after) for before, after in pairwise(maps) if after < before]
    return [Problem("reordered", f"map {after} after map {before}") for before, after in pairs[:SHOWN]]


def _sequence(source: Source, got: list[tuple[int, int]], size: Size, partitions: range) -> Iterator[Problem]:
    expected = Counter((number * 1, (number * 7 + source.map) % size.partitions) for number in range(size.records))
    expected = Counter({key: n for key, n in expected.items() if key[1] in partitions})
    had = Counter(got)
    if lost := expected - had:
        yield Problem("lost", f"{source}: {lost.total()} records, {sorted(lost)[:SHOWN]}")
    if repeated := had - expected:
        yield Problem("repeated", f"{source}: {repeated.total()} records, {sorted(repeated)[:SHOWN]}")
    latest: dict[int, int] = {}
    for number, partition in got:
        if number < latest.get(partition, -1):
            yield Problem("reordered", f"{source}: record {number} of partition {partition} after {latest[partition]}")
            return
        latest[partition] = number


def _parse(record: bytes) -> tuple[Source | None, int, int]:
    if len(record) < TAG.size + SUM.size or crc32c(record[: -SUM.size]) != SUM.unpack(record[-SUM.size :])[0]:
        return None, 0, 0
    run, shuffle, map, attempt, number, partition = TAG.unpack_from(record)
    return Source(run, shuffle, map, attempt), number, partition


def _few(found: list[Problem]) -> list[Problem]:
    """A few of each kind."""
    counts: Counter[str] = Counter()
    kept = []
    for problem in found:
        counts[problem.kind] += 1
        if counts[problem.kind] <= SHOWN:
            kept.append(problem)
    return kept
