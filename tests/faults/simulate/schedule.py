"""What happens in one simulated run: its cluster, its jobs, its faults. A seed makes one; parts can be left out."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

FAULTS_UNTIL = 30.0  # seconds; after that everything works again
LATEST = 12.0  # seconds for which a request may be under way, whatever becomes of its sender
DISK_TIMEOUT = 3.0
KINDS = (
    *("kill", "kill", "kill", "power", "down", "stop", "drain"),
    *("pause", "suspend", "clock", "cut", "disk", "fuse", "flip"),
)
DISK_STATES = ("full", "failing", "readonly", "hung")


@dataclass(frozen=True, slots=True)
class Shape:
    """A cluster. `workers`: processes beside the master; 0: one server is both."""

    workers: int
    directories: int
    fsynced: bool
    app_timeout: float
    worker_timeout: float
    snapshot_every: int
    switching: float  # how likely another thread goes on at a step
    trouble: float  # how likely a call goes wrong, until the faults are over
    late: float = 0.0  # how likely a request is under way for up to LATEST seconds, until then


@dataclass(frozen=True, slots=True)
class Job:
    """One run of an application: a driver with its tasks. Runs of one name follow each other, or overlap."""

    name: str
    start: float
    shuffles: int
    maps: int
    partitions: int
    replicas: int
    reads: int
    crash_at: float = 0.0  # when its driver is killed; 0: never
    zombie: float = 0.0  # for how long the driver stands still at `crash_at` instead


@dataclass(frozen=True, slots=True)
class Fault:
    """What befalls a node. `number` and `text` are for its kind (`tests.faults.simulate.faults`)."""

    at: float
    kind: str
    node: str
    seconds: float = 0.0
    number: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Schedule:
    """`seed` also chooses which thread goes on, and what befalls calls."""

    seed: int
    shape: Shape
    jobs: tuple[Job, ...]
    faults: tuple[Fault, ...]


def make(seed: int) -> Schedule:
    """The schedule of a seed."""
    rng = random.Random(seed)
    workers = rng.choice((0, 1, 2, 2, 3))
    shape = Shape(
        workers=workers,
        directories=rng.choice((1, 1, 2)),
        fsynced=rng.random() < 0.4,
        app_timeout=6.0,
        worker_timeout=6.0,
        snapshot_every=rng.choice((5, 12, 1000)),
        switching=rng.choice((0.02, 0.1, 0.3)),
        trouble=rng.choice((0.0, 0.05, 0.2)),
    )
    nodes = ["server"] if not workers else ["master", *(f"worker{at}" for at in range(workers))]
    jobs = tuple(_job(rng, workers) for _ in range(rng.choice((1, 2, 2, 3))))
    faults = sorted((_fault(rng, shape, nodes) for _ in range(rng.choice((0, 1, 2, 3, 4, 6)))), key=lambda f: f.at)
    return _with_relapses(Schedule(seed, shape, jobs, tuple(faults)), nodes[1:])


def _with_relapses(schedule: Schedule, workers: list[str]) -> Schedule:
    """Some of the schedules with workers: requests come late, and workers that were away for longer than their timeout
    are killed soon after they are back."""
    rng = random.Random(f"late/{schedule.seed}")
    if not workers or rng.random() < 0.8:
        return schedule
    faults = list(schedule.faults)
    for _ in range(rng.choice((1, 2))):
        node, at, seconds = rng.choice(workers), rng.uniform(2.0, 12.0), rng.uniform(6.5, 9.0)
        faults.append(Fault(at, rng.choice(("pause", "suspend", "cut")), node, seconds))
        faults.append(Fault(at + seconds + rng.uniform(0.5, 5.0), "kill", node, number=rng.randrange(0, 60)))
    shape = replace(schedule.shape, late=rng.choice((0.1, 0.3)))
    return replace(schedule, shape=shape, faults=tuple(sorted(faults, key=lambda fault: fault.at)))


def _job(rng: random.Random, workers: int) -> Job:
    ends = rng.random()
    return Job(
        name=rng.choice(("nightly", "nightly", "hourly")),
        start=rng.uniform(0.5, 15.0),
        shuffles=rng.choice((1, 1, 2)),
        maps=rng.choice((1, 2, 3)),
        partitions=rng.choice((1, 2)),
        replicas=2 if workers > 1 and rng.random() < 0.3 else 1,
        reads=rng.choice((1, 2, 3)),
        crash_at=rng.uniform(2.0, 20.0) if ends < 0.35 else 0.0,
        zombie=rng.uniform(1.0, 15.0) if ends < 0.2 else 0.0,
    )


def _fault(rng: random.Random, shape: Shape, nodes: list[str]) -> Fault:
    kind, node = rng.choice(KINDS), rng.choice(nodes)
    if kind == "power" and not shape.fsynced:
        kind = "kill"  # what is written survives the process only
    if kind == "drain" and (shape.workers < 2 or node == "master"):
        kind = "kill"
    text = rng.choice(DISK_STATES) if kind in ("disk", "fuse") else ""
    seconds = rng.choice((rng.uniform(0.1, 2.0), rng.uniform(2.0, 14.0)))
    if kind == "clock":
        seconds = rng.choice((-1, 1)) * rng.choice((5.0, 60.0, 86_400.0))
    return Fault(rng.uniform(1.0, FAULTS_UNTIL - 10.0), kind, node, seconds, rng.randrange(0, 60), text)
