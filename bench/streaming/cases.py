"""Which cases the command runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from bench.streaming.plan import IDENTITY, WORDCOUNT, Case

SLOW, CHECKPOINTS = "slow", "checkpoints"
NAMES = (IDENTITY, WORDCOUNT, SLOW, CHECKPOINTS)

# Records per source at saturation, of either side: some seconds of each.
RECORDS = {IDENTITY: (40_000_000, 6_000_000), WORDCOUNT: (6_000_000, 2_000_000)}
QUICK = {IDENTITY: (400_000, 100_000), WORDCOUNT: (60_000, 30_000)}
LATENCY_S = 5.0
SLOW_RATE, SLOW_S = 500_000.0, 8.0
BACKLOGS = ("1m", "4m")


@dataclass(frozen=True, slots=True)
class Point:
    """A case as each side runs it; they differ in the number of records only. No `flink`: only our side can."""

    name: str
    flight: Case
    flink: Case | None = None


def points(
    name: str, parallelisms: Iterable[int], guarantees: Iterable[str], rates: Iterable[float], *, quick: bool
) -> list[Point]:
    """The points of one benchmark: at saturation by parallelism and guarantee, then by offered load (identity only)."""
    if name == SLOW:
        return [slow(quick=quick)]
    if name == CHECKPOINTS:
        return checkpoints(quick=quick)
    guarantees = list(guarantees)
    found = [saturated(name, parallelism, each, quick=quick) for parallelism in parallelisms for each in guarantees]
    if name == IDENTITY:
        found += [loaded(rate, guarantees[0], quick=quick) for rate in rates]
    return found


def saturated(name: str, parallelism: int, guarantee: str, *, quick: bool) -> Point:
    """As many records as go; their number is divided among the sources."""
    own, flinks = (QUICK if quick else RECORDS)[name]
    block = {WORDCOUNT: 4096, IDENTITY: 20_000}[name]
    options = {"window": "16m", "queue_bytes": "16m"} if name == IDENTITY else {}
    case = Case(name, parallelism, guarantee, records=own // parallelism, block_records=block, options=options)
    return Point(f"{name} {parallelism}->{parallelism} {guarantee}", case, replace(case, records=flinks // parallelism))


def loaded(rate: float, guarantee: str, *, quick: bool) -> Point:
    """Identity at an offered load, for the latency."""
    seconds = 1.0 if quick else LATENCY_S
    case = Case(IDENTITY, 1, guarantee, records=int(rate * seconds), rate=rate)
    return Point(f"identity 1->1 {guarantee} at {rate:,.0f}/s", case, case)


def slow(*, quick: bool) -> Point:
    """A consumer that is slower than its producer."""
    seconds = 2.0 if quick else SLOW_S
    case = Case(IDENTITY, records=int(SLOW_RATE * seconds), consume_rate=SLOW_RATE, block_records=2048)
    return Point(f"slow consumer, {SLOW_RATE:,.0f}/s", case)


def checkpoints(*, quick: bool) -> list[Point]:
    """Barriers through a full queue, aligned and not, with backlogs of two sizes."""
    seconds, interval = (3.0, 1.0) if quick else (12.0, 3.0)
    base = Case(
        IDENTITY,
        2,
        "exactly_once",
        records=int(SLOW_RATE * seconds),
        consume_rate=SLOW_RATE,
        block_records=2048,
        checkpoint_s=interval,
    )
    found = []
    for backlog in BACKLOGS[:1] if quick else BACKLOGS:
        for alignment in ("aligned", "unaligned"):
            case = replace(base, alignment=alignment, options={"queue_bytes": backlog})
            found.append(Point(f"checkpoint {alignment}, queue {backlog}", case))
    return found
