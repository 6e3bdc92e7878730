"""What faults do to the tasks and the driver of a batch job: some die, some come back late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tests.faults.explore.hands import Hand, Work
from tests.faults.explore.schedule import Fault


class Job(Protocol):
    """What a fault sees of the job. `anew`, if it is set, has the job begin again as another run of the same name."""

    driver: Hand | None
    hands: list[Hand]
    anew: str

    def again(self, work: Work) -> None: ...


def _kill_task(job: Job, fault: Fault, hand: Hand | None) -> None:
    if hand is not None and hand is not job.driver:
        hand.actor.kill()
        hand.ended = True


def _stop_task(job: Job, fault: Fault, hand: Hand | None) -> None:
    """It stands still, is given up, and comes back late."""
    if hand is None or hand is job.driver or hand.work is None:
        return
    work, hand.late = hand.work, True
    hand.freeze(fault.amount)
    if work.ledger is not None:
        job.again(Work(work.ledger, map=work.map, partitions=work.partitions))


def _kill_driver(job: Job, fault: Fault, hand: Hand | None) -> None:
    assert job.driver is not None
    job.driver.actor.kill()
    job.driver.ended = True
    _hold_tasks(job, fault)


def _stop_driver(job: Job, fault: Fault, hand: Hand | None) -> None:
    """It comes back late, and closes then."""
    assert job.driver is not None
    job.driver.freeze(fault.amount)
    _hold_tasks(job, fault)


def _same_name(job: Job, fault: Fault, hand: Hand | None) -> None:
    """The driver ends in order while tasks are at work."""
    _hold_tasks(job, fault)


def _hold_tasks(job: Job, fault: Fault) -> None:
    """Those of the run are late ones, which go on when the next run is at work."""
    for hand in job.hands:
        if hand.work is not None and hand is not job.driver:
            hand.hold(fault.amount)
    job.anew = "another run has the name"


TASK_FAULTS: dict[str, Callable[[Job, Fault, Hand | None], None]] = {
    "kill task": _kill_task,
    "stop task": _stop_task,
    "kill driver": _kill_driver,
    "stop driver": _stop_driver,
    "again": _same_name,
}
