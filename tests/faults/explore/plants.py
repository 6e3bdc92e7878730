"""Planted bugs: schedules whose faults can meet each, and the hunt for it.

A bug counts as found if a schedule is wrong with it and right without it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from tests.faults.explore.exploring import Score, explore
from tests.faults.explore.running import Outcome, run
from tests.faults.explore.schedule import LONG_STOP_S, Fault, Schedule, Topology
from tests.faults.explore.streaming_cases import LOGGED, PARTITIONS, PRODUCERS

LIMIT_S = 300.0
"""For so long a bug is hunted."""

Draw = Callable[[random.Random], Schedule]


@dataclass(frozen=True, slots=True)
class Hunt:
    """How one ended. `found` is the first schedule that is wrong with the bug and right without it; `seconds` those
    until it was wrong; `unsound` are schedules that are wrong without the bug as well."""

    bug: str
    seconds: float
    schedules: int
    found: Outcome | None = None
    unsound: tuple[Outcome, ...] = ()

    def row(self) -> dict[str, object]:
        """For a report."""
        found = self.found
        return {
            "bug": self.bug,
            "seconds": self.seconds,
            "schedules": self.schedules,
            "seed": None if found is None else found.schedule.seed,
            "schedule": "" if found is None else str(found.schedule),
            "findings": [] if found is None else [str(each)[:300] for each in found.findings],
            "wrong_without_it": [outcome.schedule.seed for outcome in self.unsound],
        }


def plan(bug: str, seed: int) -> Schedule:
    """The schedule of a seed that can meet the bug, with it."""
    return replace(_DRAWN[bug](random.Random(f"{bug} {seed}")), seed=seed, bugs=(bug,))


def hunt(bug: str, seed: int, scratch: Path, *, parallel: int, limit: float = LIMIT_S, only: bool = False) -> Hunt:
    """Run the schedules of the seeds from `seed` on until one finds the bug.

    :param only: no other seed.
    """
    began, tried = time.monotonic(), 0
    unsound: list[Outcome] = []
    seeds: Iterator[int] = iter((seed,)) if only else count(seed)
    given = (plan(bug, each) for each in seeds)
    while time.monotonic() < began + limit:
        score = explore(given, scratch, parallel=parallel, more=lambda so_far: _goes_on(so_far, began + limit))
        tried += len(score.outcomes)
        seconds = round((score.wrong_at or time.monotonic()) - began, 1)
        for outcome in score.wrong:
            control = run(replace(outcome.schedule, bugs=()), scratch)
            if control.right:
                return Hunt(bug, seconds, tried, outcome, tuple(unsound))
            unsound.append(control)
        if only:
            break
    return Hunt(bug, round(time.monotonic() - began, 1), tried, None, tuple(unsound))


def _goes_on(score: Score, until: float) -> bool:
    return not score.wrong and time.monotonic() < until


def _batch(chance: random.Random, topology: Topology, *faults: Fault, **given: int) -> Schedule:
    by_file = (("hand_over", "auto"), ("hand_over_from", "0"))
    return Schedule(
        0,
        "remote",
        topology,
        tuple(sorted(faults, key=lambda fault: fault.nth)),
        options=(("codec", "none"), *(by_file if chance.random() < 0.5 else (("hand_over", "off"),))),
        **given,  # type: ignore[arg-type]
    )


def _moments(chance: random.Random, faults: int) -> list[int]:
    """Of the six commits of a job."""
    return chance.sample(range(6), faults)


def _flips_of_outputs(chance: random.Random) -> Schedule:
    flips = [Fault("flip", "committed", n, amount=chance.random(), detail="output") for n in _moments(chance, 3)]
    return _batch(chance, "server", *flips, records=300, size=3000)


def _flips_of_logs(chance: random.Random) -> Schedule:
    moments = chance.sample(range(6, 60), 6)
    flips = [Fault("log", "wrote", n, 0.0, chance.randrange(2), chance.random(), "flip") for n in moments]
    case = LOGGED + chance.choice(("aligned", "unaligned"))
    return Schedule(0, "pipelined", faults=tuple(flips), case=case, records=8000, maps=PRODUCERS, partitions=PARTITIONS)


def _kills_after_commits(chance: random.Random) -> Schedule:
    return _batch(chance, "server", *(Fault("kill", "committed", n) for n in _moments(chance, 2)))


def _failing_journals(chance: random.Random) -> Schedule:
    error = chance.choice(("EIO", "ENOSPC", "EROFS"))
    moment = chance.randrange(4)
    return _batch(chance, "server", Fault("disk", "committed", moment, detail=f"journal {error} on"))


def _clocks_of_masters(chance: random.Random) -> Schedule:
    clocks = [Fault("clock", "committed", n, amount=chance.choice((30.0, 3600.0, 1e7))) for n in _moments(chance, 2)]
    return _batch(chance, chance.choice(("server", "cluster")), *clocks, idle=8)


def _stops_of_masters(chance: random.Random) -> Schedule:
    stop = Fault("stop", "committed", chance.randrange(4), amount=LONG_STOP_S)
    return _batch(chance, chance.choice(("server", "cluster")), stop, idle=3)


def _deposed_leaders(chance: random.Random) -> Schedule:
    """The one that leads stands still until the other one leads, which is killed later."""
    first, then = sorted(_moments(chance, 2))
    stop = Fault("stop", "committed", first, amount=LONG_STOP_S + chance.choice((0.0, 1.0, 2.0)))
    return _batch(chance, "standby", stop, Fault("kill", "committed", then, 1.0, victim=1), idle=8)


def _racing_attempts(chance: random.Random) -> Schedule:
    stops = [Fault("stop task", "commit", n, amount=0.5) for n in _moments(chance, 3)]
    return _batch(chance, "cluster", *stops, idle=2)


_DRAWN: dict[str, Draw] = {
    "skip-crc": _flips_of_outputs,
    "replay-unverified": _flips_of_logs,
    "acknowledge-before-durable": _kills_after_commits,
    "swallow-journal-errors": _failing_journals,
    "wall-clock-in-expiry": _clocks_of_masters,
    "own-standstill-counts": _stops_of_masters,
    "forget-an-output": _kills_after_commits,
    "forget-epoch": _deposed_leaders,
    "last-commit-wins": _racing_attempts,
}
