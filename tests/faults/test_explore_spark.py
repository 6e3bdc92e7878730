"""Jobs of Spark of the fault explorer: what its oracle finds, and one schedule of each fault that only Spark has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.explore.records import Record, Size, Source, written
from tests.faults.explore.running import run
from tests.faults.explore.schedule import LONG_STOP_S, Fault, Schedule, Topology
from tests.faults.explore.spark import close_spark
from tests.faults.explore.spark_run import wrong_reads, wrong_reruns

SIZE = Size(partitions=2, records=12, size=10)
ATTEMPTS = [(10, 0), (11, 1), (13, 1)]
"""Spark's ids and the maps of those that succeeded: map 1 ran again; attempt 12 failed."""


def of(run: int, map: int, attempt: int) -> list[Record]:
    """What reduce task 0 reads of an attempt."""
    return [record for record in written(Source(run, 0, map, attempt), SIZE) if record[0] == 0]


def test_each_reduce_task_may_read_another_attempt_that_succeeded() -> None:
    other = [record for map, attempt in ((0, 10), (1, 13)) for record in written(Source(1, 0, map, attempt), SIZE)]
    reads = [[*of(1, 0, 10), *of(1, 1, 11)], [record for record in other if record[0] == 1]]
    assert wrong_reads(reads, 1, SIZE, range(2), ATTEMPTS) == []


FIRST, SECOND = of(1, 0, 10), of(1, 1, 11)
WRONG: dict[str, list[Record]] = {
    "lost": [*FIRST, *SECOND[1:]],
    "repeated": [*FIRST, FIRST[-1], *SECOND],
    "reordered": [FIRST[1], FIRST[0], *FIRST[2:], *SECOND],
    "mixed": [*FIRST, *SECOND[:3], *of(1, 1, 13)[3:]],
    "foreign": [*FIRST, *SECOND, of(2, 0, 10)[0]],
    "damaged": [(0, FIRST[0][1][:-1] + bytes([FIRST[0][1][-1] ^ 1])), *FIRST[1:], *SECOND],
    "refused": [*FIRST, *of(1, 1, 12)],
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_records_of_one_reduce_task_are_found(kind: str) -> None:
    other = [record for map, attempt in ((0, 10), (1, 11)) for record in written(Source(1, 0, map, attempt), SIZE)]
    right = [record for record in other if record[0] == 1]
    found = wrong_reads([WRONG[kind], right], 1, SIZE, range(2), ATTEMPTS)
    assert kind in {finding.kind for finding in found}
    assert all("reduce task 0" in finding.what for finding in found)


def test_maps_in_another_order_and_without_any_record_are_found() -> None:
    size = Size(partitions=1, records=12, size=10)
    first, second = (list(written(Source(1, 0, map, 10 + map), size)) for map in (0, 1))
    found = [wrong_reads([read], 1, size, range(2), ATTEMPTS) for read in ([*second, *first], first)]
    assert [[finding.kind for finding in each] for each in found] == [["reordered"], ["lost"]]


def test_only_lost_maps_may_run_again() -> None:
    assert wrong_reruns(ATTEMPTS, {11}) == []
    assert [finding.kind for finding in wrong_reruns(ATTEMPTS, set())] == ["dropped"]
    assert [finding.kind for finding in wrong_reruns(ATTEMPTS, {10, 11})] == ["dropped"]
    assert [finding.kind for finding in wrong_reruns([*ATTEMPTS, (14, 1)], {11})] == ["dropped"]


@pytest.fixture(scope="module")
def clusters() -> Iterator[None]:
    """Ends those of Spark."""
    yield
    close_spark()


BY_FILE = (("batchSize", "4k"), ("blockSize", "4k"))
SCHEDULES: dict[str, tuple[Topology, tuple[Fault, ...]]] = {
    "server killed, outputs lost": ("server", (Fault("kill", "map", 3), Fault("lose outputs", "read", victim=2))),
    "executor stopped beside its copy": ("server", (Fault("stop executor", "map", 2, amount=4.0),)),
}
AT_LENGTH: dict[str, tuple[Topology, tuple[Fault, ...]]] = {
    "worker lost": ("cluster", (Fault("lose worker", "map", 5, victim=1),)),
    "executor lost": ("cluster", (Fault("stop executor", "reduce", 2, amount=LONG_STOP_S),)),
    "executor killed, master killed": ("cluster", (Fault("kill executor", "map", 5), Fault("kill", "reduce", 1))),
    "name used again": ("server", (Fault("again", "reduce", 2),)),
}


@pytest.mark.spark
@pytest.mark.timeout(2000)
@pytest.mark.parametrize("name", [*SCHEDULES, *(pytest.param(name, marks=pytest.mark.nightly) for name in AT_LENGTH)])
def test_records_are_right_and_only_lost_maps_run_again(name: str, tmp_path: Path, clusters: None) -> None:
    topology, faults = (SCHEDULES | AT_LENGTH)[name]
    schedule = Schedule(7, "spark", topology, faults, maps=8, partitions=10, records=300, options=BY_FILE, races=1)
    outcome = run(schedule, tmp_path)
    assert outcome.right, outcome
