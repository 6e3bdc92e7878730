"""Making a failing schedule small: whatever can be left out, while it still fails, is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.faults.simulate.schedule import Schedule

MOST_RUNS = 150


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """A schedule as small as can be found that `fails` too."""
    runs, smaller = 0, True
    while smaller:
        smaller = False
        for candidate in _smaller(schedule):
            runs += 1
            if runs > MOST_RUNS:
                return schedule
            if fails(candidate):
                schedule, smaller = candidate, True
                break
    return schedule


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    """Schedules with a little less, the largest steps first."""
    faults, jobs, shape = schedule.faults, schedule.jobs, schedule.shape
    if len(faults) > 1:
        half = len(faults) // 2
        yield replace(schedule, faults=faults[:half])
        yield replace(schedule, faults=faults[half:])
    for at in range(len(faults)):
        yield replace(schedule, faults=faults[:at] + faults[at + 1 :])
    if len(jobs) > 1:
        for at in range(len(jobs)):
            yield replace(schedule, jobs=jobs[:at] + jobs[at + 1 :])
    if shape.trouble:
        yield replace(schedule, shape=replace(shape, trouble=0.0))
    if shape.workers > 1:
        yield replace(schedule, shape=replace(shape, workers=shape.workers - 1))
    if shape.directories > 1:
        yield replace(schedule, shape=replace(shape, directories=1))
    for at, job in enumerate(jobs):
        for less in ({"maps": 1}, {"partitions": 1}, {"reads": 1}, {"shuffles": 1}, {"crash_at": 0.0, "zombie": 0.0}):
            fewer = replace(job, **less)
            if fewer != job:
                yield replace(schedule, jobs=(*jobs[:at], fewer, *jobs[at + 1 :]))
