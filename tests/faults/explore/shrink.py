"""The smallest schedule that still fails: fewer faults, then a smaller job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from tests.faults.explore.running import run
from tests.faults.explore.schedule import Schedule

TRIES = 3
"""Runs of a candidate: a race that fails now and then must not pass because it was right once."""


def shrink(schedule: Schedule, scratch: Path) -> Schedule:
    """See `smallest`; a candidate fails if one of its runs is wrong."""

    def fails(candidate: Schedule) -> bool:
        return any(not run(candidate, scratch, keep=False).right for _ in range(TRIES))

    return smallest(schedule, fails)


def smallest(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """The last of ever smaller schedules that fail; none that is one step smaller does."""
    while True:
        for candidate in _smaller(schedule):
            if fails(candidate):
                schedule = candidate
                break
        else:
            return schedule


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    for at in range(len(schedule.faults)):
        yield replace(schedule, faults=schedule.faults[:at] + schedule.faults[at + 1 :])
    if schedule.idle:
        yield replace(schedule, idle=0)
    if schedule.restart:
        yield replace(schedule, restart=False)
    if schedule.races:
        yield replace(schedule, races=0)
    if schedule.shuffles > 1:
        yield replace(schedule, shuffles=1)
    if schedule.maps > 1:
        yield replace(schedule, maps=schedule.maps - 1)
    if schedule.partitions > 1:
        yield replace(schedule, partitions=schedule.partitions - 1)
    if schedule.records > 12:
        yield replace(schedule, records=12)
    if schedule.server:
        yield replace(schedule, server=())
