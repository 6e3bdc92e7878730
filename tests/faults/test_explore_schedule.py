"""Schedules of the fault explorer: the same ones for a seed, of all kinds, and the smallest that fails."""

from __future__ import annotations

from tests.faults.explore.exploring import WEIGHTS
from tests.faults.explore.schedule import KINDS, SPARK_KINDS, Fault, Schedule, draw
from tests.faults.explore.shrink import smallest

JOBS, OFTEN = tuple(WEIGHTS), tuple(WEIGHTS.values())


def test_schedule_of_a_seed_is_always_the_same_one() -> None:
    assert [draw(seed, JOBS, OFTEN) for seed in range(50)] == [draw(seed, JOBS, OFTEN) for seed in range(50)]
    assert len({draw(seed, JOBS, OFTEN) for seed in range(50)}) == 50


def test_all_jobs_and_all_faults_are_drawn() -> None:
    drawn = [draw(seed, JOBS, OFTEN) for seed in range(1000)]
    assert {schedule.job for schedule in drawn} == set(JOBS)
    batch = [schedule for schedule in drawn if schedule.job in ("remote", "hybrid")]
    assert {fault.kind for schedule in batch for fault in schedule.faults} == set(KINDS)
    assert {schedule.topology for schedule in batch} == {"server", "cluster", "standby"}
    assert all(schedule.faults for schedule in drawn)


def test_faults_of_spark_are_drawn_where_they_can_strike() -> None:
    drawn = [draw(seed, ["spark"], [1]) for seed in range(300)]
    struck = {(schedule.topology, fault.kind, fault.event) for schedule in drawn for fault in schedule.faults}
    assert {kind for _, kind, _ in struck} == set(SPARK_KINDS)
    assert {topology for topology, _, _ in struck} == {"server", "cluster"}
    assert ("server", "lose worker") not in {(topology, kind) for topology, kind, _ in struck}
    assert {event for _, kind, event in struck if kind == "lose outputs"} == {"read"}
    assert {event for _, kind, event in struck if kind in ("kill", "kill executor")} == {"map", "reduce"}
    kept = [dict(schedule.server) for schedule in drawn if any(fault.kind[:4] == "lose" for fault in schedule.faults)]
    assert not any("tier-after" in options for options in kept)


def test_smallest_failing_schedule_has_the_faults_and_the_work_that_matter() -> None:
    faults = tuple(Fault(kind, nth=nth) for nth, kind in enumerate(("kill", "clock", "stop", "flip", "disk")))
    looked: list[Schedule] = []

    def fails(schedule: Schedule) -> bool:
        looked.append(schedule)
        return {"clock", "flip"} <= {fault.kind for fault in schedule.faults} and schedule.maps >= 2

    small = smallest(Schedule(1, "remote", faults=faults, maps=4, races=1, records=300), fails)
    assert [fault.kind for fault in small.faults] == ["clock", "flip"]
    assert (small.maps, small.shuffles, small.partitions, small.races, small.restart) == (2, 1, 1, 0, False)
    assert small.records == 12
    assert len(looked) < 60
