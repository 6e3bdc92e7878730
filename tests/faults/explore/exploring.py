"""Runs many schedules at once and keeps the score."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import forkserver
from pathlib import Path

from tests.faults.explore.running import Outcome, run
from tests.faults.explore.schedule import Schedule, draw

WEIGHTS = {"remote": 10, "hybrid": 4, "pipelined": 5, "spark": 1}
"""The jobs, and how often one is drawn."""


@dataclass(slots=True)
class Score:
    """What has come out so far."""

    outcomes: list[Outcome] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    wrong_at: float = 0.0
    """When the first wrong one had ended; 0: none has."""

    @property
    def wrong(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if not outcome.right]

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self.began, 1)

    def by_fault(self) -> list[tuple[str, int, int]]:
        """Each kind of fault of each job: schedules with it, and how many of them were wrong."""
        ran: Counter[str] = Counter()
        wrong: Counter[str] = Counter()
        for outcome in self.outcomes:
            kinds = {f"{outcome.schedule.job}: {_kind(fault.kind, fault.detail)}" for fault in outcome.schedule.faults}
            ran.update(kinds)
            wrong.update(kinds if not outcome.right else ())
        return [(kind, ran[kind], wrong[kind]) for kind in sorted(ran)]

    def unchecked(self) -> Counter[str]:
        """What was not looked at, and why: in how many schedules."""
        return Counter(reason for outcome in self.outcomes for reason in outcome.unchecked)


def fresh_seed() -> int:
    """One that nobody has used."""
    return random.SystemRandom().randrange(1 << 40)


def schedules(seed: int, jobs: Sequence[str]) -> Iterator[Schedule]:
    """Those of the seeds from `seed` on."""
    weights = [WEIGHTS[job] for job in jobs]
    while True:
        yield draw(seed, jobs, weights)
        seed += 1


def explore(
    given: Iterator[Schedule],
    scratch: Path,
    *,
    parallel: int,
    more: Callable[[Score], bool],
    each: Callable[[Outcome], object] = lambda outcome: None,
) -> Score:
    """Run schedules, `parallel` at once, while there are any and `more` says so."""
    forkserver.ensure_running()  # with the environment as it is before threads here use Flight (grpc_polling)
    score, stop = Score(), threading.Event()
    with ThreadPoolExecutor(parallel, thread_name_prefix="schedule") as pool:
        running: set[Future[Outcome]] = set()
        while True:
            while len(running) < parallel and not stop.is_set():
                schedule = next(given, None) if more(score) else None
                if schedule is None:
                    stop.set()
                else:
                    running.add(pool.submit(run, schedule, scratch))
            if not running:
                return score
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                score.outcomes.append(future.result())
                if score.wrong and not score.wrong_at:
                    score.wrong_at = time.monotonic()
                each(score.outcomes[-1])


def _kind(kind: str, detail: str) -> str:
    """Without an amount: `disk journal EIO`."""
    return f"{kind} {' '.join(detail.split()[:2])}".strip()
