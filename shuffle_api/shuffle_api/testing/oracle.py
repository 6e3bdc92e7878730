"""The oracle: a workload made from a seed, and the records that a reader must return of it.

The law: the records a reader yields are those that the winning attempt of each map wrote, each exactly once, and
those of one map and one partition in the order written.

Each record begins with a tag that names its attempt and its place in the order, so that a record that is lost,
repeated, moved or of a losing attempt can be named. Only empty records carry no tag; they are counted.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import ShufflePlugin, ShuffleWriter
from shuffle_api.values import MapOutput, ShuffleHandle

Record: TypeAlias = tuple[int, bytes]
"""A partition and the bytes of one of its records."""

TAG = struct.Struct("<III")
"""Map, attempt, and number of the record within the attempt."""

SHOWN = 5
"""Records shown per problem."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Records for `maps` maps and `partitions` partitions, the same ones for the same `seed`.

    Each attempt writes `records` records of up to `size` bytes after the tag; about one in sixteen is empty.
    Attempts of one map write different records, so that it shows which of them a reader got.
    """

    seed: int
    partitions: int
    maps: int
    records: int = 100
    size: int = 40

    def attempts(self) -> list[MapAttempt]:
        """Attempt 0 of each map."""
        return [MapAttempt(map, 0) for map in range(self.maps)]

    def written(self, attempt: MapAttempt) -> list[Record]:
        """What `attempt` writes, in order."""
        chance = random.Random(f"{self.seed} {attempt}")
        return [(chance.randrange(self.partitions), self._record(chance, attempt, n)) for n in range(self.records)]

    def expected(self, winners: Iterable[MapAttempt], partitions: range) -> list[Record]:
        """What a reader of `partitions` must yield once the `winners` have committed, in one of the allowed orders."""
        return [record for winner in winners for record in self.written(winner) if record[0] in partitions]

    def _record(self, chance: random.Random, attempt: MapAttempt, number: int) -> bytes:
        if chance.randrange(16) == 0:
            return b""
        return TAG.pack(attempt.map, attempt.attempt, number) + chance.randbytes(chance.randrange(self.size + 1))


def fill(writer: ShuffleWriter, records: Iterable[Record]) -> None:
    """Write the records."""
    for partition, record in records:
        writer.write(partition, record)


def write(plugin: ShufflePlugin, handle: ShuffleHandle, workload: Workload, attempt: MapAttempt) -> MapOutput:
    """Write and commit what `attempt` has to write; return the winner of its map."""
    with plugin.writer(handle, attempt) as writer:
        fill(writer, workload.written(attempt))
        return writer.commit()


def read(
    plugin: ShufflePlugin, handle: ShuffleHandle, partitions: range | None = None, maps: range | None = None
) -> list[Record]:
    """All records of the ranges, in the order in which the reader yields them."""
    with plugin.reader(handle, range(handle.spec.partitions) if partitions is None else partitions, maps) as reader:
        return list(reader)


def problems(expected: Iterable[Record], got: Iterable[Record]) -> list[str]:
    """What is wrong with the records `got`, a line each; nothing if the law holds."""
    wanted, found = Counter(expected), list(got)
    had = Counter(found)
    repeated = Counter({record: n for record, n in (had - wanted).items() if record in wanted})
    kinds = {
        "lost": wanted - had,
        "repeated": repeated,
        "never written by a winner, or not of this range": had - wanted - repeated,
        "out of order": Counter(_out_of_order(found)),
    }
    return [f"{records.total()} records {kind}: {_show(records)}" for kind, records in kinds.items() if records]


def verify(expected: Iterable[Record], got: Iterable[Record]) -> None:
    """:raises AssertionError: the law does not hold; the message names the records that break it."""
    found = problems(expected, got)
    if found:
        raise AssertionError("; ".join(found))


def _out_of_order(records: Iterable[Record]) -> Iterator[Record]:
    latest: dict[tuple[int, int], int] = {}
    for partition, record in records:
        if len(record) >= TAG.size:
            map, _, number = TAG.unpack_from(record)
            if number < latest.setdefault((map, partition), number):
                yield partition, record
            latest[map, partition] = number


def _show(records: Counter[Record]) -> str:
    shown = [f"partition {partition} {_name(record)}" for partition, record in list(records)[:SHOWN]]
    return ", ".join(shown) + (", ..." if len(records) > SHOWN else "")


def _name(record: bytes) -> str:
    if len(record) < TAG.size:
        return repr(record)
    map, attempt, number = TAG.unpack_from(record)
    return f"map {map} attempt {attempt} record {number} ({len(record)} bytes)"
