"""A schedule: a job, where it runs and what goes wrong at which moments of it. All of it is drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tests.faults.explore.streaming_cases import CASES, PARTITIONS, PRODUCERS, case_of

Topology = Literal["server", "cluster", "standby"]
EVENTS = ("register", "open", "half", "commit", "committed", "read", "first", "done")
"""Moments of a batch job: a shuffle is registered, a writer is open, has written half, is about to commit, has
committed; a reader is open, has its first record, has all."""

MERGED_MAPS = 48
"""Small outputs enough that a worker merges them when they are read."""
APP_TIMEOUT_S = 6
WORKER_TIMEOUT_S = 4
DISK_TIMEOUT_S = 3
LONG_STOP_S = 9.0
"""Beyond every timeout of the servers."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`kind` strikes when the `nth` `event` (from 0) has come, `after` seconds later.

    `victim` counts among those that the kind can strike; `amount` is in seconds, calls or parts, by kind; `detail` says
    where: of a directory and an error, a kind of file, a connection.
    """

    kind: str
    event: str = "half"
    nth: int = 0
    after: float = 0.0
    victim: int = 0
    amount: float = 0.0
    detail: str = ""

    def __str__(self) -> str:
        late = f" +{self.after:g} s" if self.after else ""
        what = " ".join(filter(None, (self.kind, self.detail, f"{self.amount:g}" if self.amount else "")))
        return f"{what} (of {self.victim}) at {self.event} {self.nth}{late}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """`job` is a plugin or `spark`; `options` are the client's, `server` those of the servers beside the usual. A batch
    job does nothing for `idle` seconds between its work and its last reads."""

    seed: int
    job: str
    topology: str = "server"
    faults: tuple[Fault, ...] = ()
    shuffles: int = 2
    maps: int = 3
    partitions: int = 3
    records: int = 60
    size: int = 300
    races: int = 0
    tasks: int = 2
    idle: int = 0
    restart: bool = True
    options: tuple[tuple[str, str], ...] = ()
    server: tuple[tuple[str, str], ...] = ()
    directories: int = 1
    case: str = ""
    bugs: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        what = f"{self.job} {self.case or self.topology}"
        return f"seed {self.seed}: {what}; " + (", ".join(map(str, self.faults)) or "no fault")


def draw(seed: int, jobs: Sequence[str], weights: Sequence[int]) -> Schedule:
    """The schedule of a seed, the same one each time."""
    chance = random.Random(f"explore {seed}")
    job = chance.choices(jobs, weights)[0]
    return _DRAWN[job](Schedule(seed, job), chance)


def _batch(schedule: Schedule, chance: random.Random) -> Schedule:
    topology = chance.choices(("server", "cluster", "standby"), (5, 4, 1))[0]
    directories = chance.choice((1, 1, 2)) if topology != "standby" else 1
    maps = chance.choices((2, 3, 4, MERGED_MAPS), (6, 6, 6, 1))[0]
    schedule = replace(
        schedule,
        topology=topology,
        directories=directories,
        shuffles=chance.choice((1, 2, 2)),
        maps=maps,
        partitions=chance.choice((2, 3, 5)),
        records=chance.choice((12, 60, 300)) if maps < MERGED_MAPS else 12,
        size=chance.choice((20, 300, 3000)),
        races=chance.choice((0, 0, 1)),
        restart=chance.random() < 0.7,
        idle=random.Random(f"idle {schedule.seed}").choice((0, 0, 0, 0, 8)),
        options=tuple(_options(schedule.job, topology, chance)),
        server=tuple(_server_options(chance)),
    )
    count = chance.choice((1, 1, 2, 2, 3, 4))
    faults = [_fault(schedule, chance) for _ in range(count)]
    return replace(schedule, faults=tuple(sorted(faults, key=lambda fault: (fault.nth, fault.after))))


def _options(job: str, topology: str, chance: random.Random) -> list[tuple[str, str]]:
    by_file = chance.random() < 0.5
    found = [("hand_over", "auto"), ("hand_over_from", "0")] if by_file else [("hand_over", "off")]
    found.append(("codec", chance.choice(("lz4", "none", "zstd"))))
    if chance.random() < 0.5:
        found += [("push_bytes", str(64 << 10)), ("block_bytes", str(4 << 10))]
    if topology == "cluster" and chance.random() < 0.3:
        found.append(("replicas", "2"))
    if job == "hybrid":
        found += [("keepalive", "1"), ("wait", "3"), ("linger", "0.5"), ("flush_timeout", "0.01")]
    return found


def _server_options(chance: random.Random) -> list[tuple[str, str]]:
    found = [("durability", chance.choice(("written", "fsynced")))]
    if chance.random() < 0.4:
        found.append(("snapshot-every", chance.choice(("1", "4"))))
    if chance.random() < 0.2:
        found.append(("tier-after", chance.choice(("0.1", "1"))))
    return found


def _fault(schedule: Schedule, chance: random.Random) -> Fault:
    kinds = KINDS | (_FOR_TASKS if schedule.job == "hybrid" else {})
    kind = chance.choices(tuple(kinds), tuple(kinds.values()))[0]
    of_tasks = kind.endswith(("task", "driver", "again"))
    event = chance.choice(("open", "half", "commit", "committed") if of_tasks else EVENTS)
    most = {"register": schedule.shuffles}.get(event, schedule.shuffles * schedule.maps)
    fault = Fault(
        kind,
        event,
        chance.randrange(most),
        chance.choice((0.0, 0.0, 0.002, 0.02, 0.3)),
        chance.randrange(4),
    )
    return _DETAILS[kind](fault, chance) if kind in _DETAILS else fault


def _amount(*amounts: float) -> Callable[[Fault, random.Random], Fault]:
    return lambda fault, chance: replace(fault, amount=chance.choice(amounts))


def _disk(fault: Fault, chance: random.Random) -> Fault:
    where, error = chance.choice(("journal", "data", "data")), chance.choice(("EIO", "ENOSPC", "EROFS"))
    times = chance.choice(("once", "on"))
    return replace(fault, amount=float(chance.randrange(12)), detail=f"{where} {error} {times}")


def _hang(fault: Fault, chance: random.Random) -> Fault:
    return replace(fault, amount=chance.choice((1.0, 5.0, 12.0)), detail=chance.choice(("journal", "data")))


def _network(fault: Fault, chance: random.Random) -> Fault:
    what = chance.choice(("reset", "freeze", "delay"))
    return replace(fault, amount=chance.choice((0.5, 4.0)), detail=f"{chance.choice(('control', 'data'))} {what}")


def _flip(fault: Fault, chance: random.Random) -> Fault:
    return replace(fault, amount=chance.random(), detail=chance.choice(("output", "output", "journal", "any")))


KINDS = {
    "kill": 5,
    "restart": 2,
    "stop": 3,
    "clock": 3,
    "disk": 6,
    "hang": 3,
    "network": 4,
    "flip": 3,
    "kill task": 2,
    "stop task": 3,
    "kill driver": 1,
    "stop driver": 1,
    "again": 3,
}
"""What may strike a batch job, and how often one is drawn."""

SERVER_FAULTS = ("kill", "restart", "stop", "clock", "disk", "hang", "network", "flip")
SPARK_KINDS = {kind: KINDS[kind] for kind in SERVER_FAULTS} | {
    "kill executor": 3,
    "stop executor": 4,
    "lose worker": 4,
    "lose outputs": 3,
    "again": 2,
}
"""What may strike a job of Spark: executors, the files of a worker or of single outputs; `again`: while the driver is
stopped, another one runs a job under the same name."""
SPARK_EVENTS = ("map", "reduce", "read")
"""A map task or a reduce task is in its middle; all has been read once."""

_FOR_TASKS = {"kill task": 5, "stop task": 4}

_DETAILS: dict[str, Callable[[Fault, random.Random], Fault]] = {
    "kill": _amount(0.0, 0.2, 1.5),
    "stop": _amount(0.3, 2.0, LONG_STOP_S),
    "clock": _amount(30.0, 3600.0, 1e7, -30.0, -3600.0, -1e7),
    "disk": _disk,
    "hang": _hang,
    "network": _network,
    "flip": _flip,
    "stop task": _amount(1.0, 4.0, LONG_STOP_S),
    "stop driver": _amount(4.0, LONG_STOP_S),
    "again": _amount(0.5, 3.0),
    "stop executor": _amount(1.0, 4.0, LONG_STOP_S),
}


def _streaming(schedule: Schedule, chance: random.Random) -> Schedule:
    case = chance.choice(CASES)
    parts = case_of(case)
    schedule = replace(
        schedule, case=case, records=chance.choice((3_000, 8_000)), maps=PRODUCERS, partitions=PARTITIONS
    )
    kinds = ["task", "task"] + ["relay", "network"] * parts.relayed + ["log", "log"] * parts.logged
    faults = [_streaming_fault(chance.choice(kinds), schedule, chance) for _ in range(chance.randint(1, 3))]
    if parts.relayed:
        faults[0] = _streaming_fault("relay", schedule, chance)
    return replace(schedule, faults=tuple(sorted(faults, key=lambda fault: (fault.event, fault.nth))))


def _streaming_fault(kind: str, schedule: Schedule, chance: random.Random) -> Fault:
    event = chance.choice(("wrote", "wrote", "checkpoint"))
    nth = chance.randrange(PRODUCERS * schedule.records // 400) if event == "wrote" else chance.randrange(8)
    fault = Fault(kind, event, nth, chance.choice((0.0, 0.003, 0.03)), chance.randrange(PRODUCERS))
    if kind == "task":
        return replace(
            fault, amount=chance.choice((0.0, 0.0, 0.3, 4.0)), detail=chance.choice(("producer", "consumer"))
        )
    if kind == "relay":
        return replace(fault, amount=chance.choice((0.0, 0.0, 0.3, 4.0)))
    if kind == "network":
        return replace(fault, amount=chance.choice((0.3, 4.0)), detail=chance.choice(("reset", "freeze")))
    return replace(fault, amount=chance.random(), detail=chance.choice(("flip", "cut")))


def _spark(schedule: Schedule, chance: random.Random) -> Schedule:
    topology = chance.choice(("server", "cluster"))
    schedule = replace(
        schedule,
        topology=topology,
        shuffles=1,
        maps=chance.choice((4, 8)),
        partitions=chance.choice((4, 10)),
        records=chance.choice((12, 60, 300)),
        size=chance.choice((20, 300, 3000)),
        races=chance.choice((0, 1)),
        restart=chance.random() < 0.5,
    )
    faults = [_spark_fault(schedule, chance) for _ in range(chance.choice((1, 1, 2)))]
    exact = any(fault.kind.startswith("lose") for fault in faults)  # one copy of each output, and on the disk
    return replace(
        schedule,
        faults=tuple(sorted(faults, key=lambda fault: SPARK_EVENTS.index(fault.event))),
        options=tuple(_spark_options(topology == "cluster" and not exact, chance)),
        server=tuple(option for option in _server_options(chance) if not exact or option[0] != "tier-after"),
    )


def _spark_fault(schedule: Schedule, chance: random.Random) -> Fault:
    kinds = dict(SPARK_KINDS)
    if schedule.topology == "server":
        del kinds["lose worker"]  # there is no other one
    kind = chance.choices(tuple(kinds), tuple(kinds.values()))[0]
    lasting = kind in ("lose worker", "flip")  # the next read meets it
    event = "read" if kind == "lose outputs" else chance.choice(SPARK_EVENTS if lasting else SPARK_EVENTS[:2])
    most = {"map": schedule.maps, "reduce": schedule.partitions}.get(event, 1)
    fault = Fault(kind, event, chance.randrange(most), chance.choice((0.0, 0.02, 0.3)), chance.randrange(4))
    return _DETAILS[kind](fault, chance) if kind in _DETAILS else fault


def _spark_options(copied: bool, chance: random.Random) -> list[tuple[str, str]]:
    found = [("handOver", "off")] if chance.random() < 0.5 else [("batchSize", "4k")]
    found += [("blockSize", "4k")] if found[0][0] == "batchSize" or chance.random() < 0.5 else []
    return [*found, ("replicas", "2")] if copied and chance.random() < 0.3 else found


_DRAWN: dict[str, Callable[[Schedule, random.Random], Schedule]] = {
    "remote": _batch,
    "hybrid": _batch,
    "pipelined": _streaming,
    "spark": _spark,
}
