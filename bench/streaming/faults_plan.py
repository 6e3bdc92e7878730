"""What `bench.streaming.faults` runs, and what strikes in each run: decided by case and seed alone."""

from __future__ import annotations

import random
from dataclasses import dataclass

LOGGED, RELAYED = "logged_", "relayed_"
GUARANTEES = ("at_most_once", "at_least_once", "aligned", "unaligned", "aligned_with_timeout")
CASES = (
    *GUARANTEES,
    f"{LOGGED}aligned",
    f"{LOGGED}unaligned",
    *(f"{RELAYED}{name}" for name in GUARANTEES),
    f"{RELAYED}{LOGGED}aligned",
)
PRODUCERS, CONSUMERS, PARTITIONS = 2, 2, 4


@dataclass(frozen=True, slots=True)
class Case:
    """`terms` is the guarantee, or for exactly_once the alignment; `logged` and `relayed` as its name begins."""

    terms: str
    logged: bool
    relayed: bool

    @property
    def guarantee(self) -> str:
        return self.terms if self.terms.startswith("at_") else "exactly_once"

    @property
    def alignment(self) -> str:
        return "aligned" if self.terms.startswith("at_") else self.terms


def case_of(name: str) -> Case:
    """The parts of a case's name."""
    rest = name.removeprefix(RELAYED)
    terms = rest.removeprefix(LOGGED)
    return Case(terms, terms != rest, rest != name)


@dataclass(frozen=True, slots=True)
class Fault:
    """At `at` seconds of the run, to that task or the relay; frozen for `frozen` seconds, or killed (0)."""

    at: float
    kind: str
    index: int
    frozen: float = 0.0


def faults_of(case: str, seed: int) -> tuple[Fault, ...]:
    """What strikes in a run, in order of time. A relay is struck at least once."""
    chance = random.Random(f"faults of {case} {seed}")
    count = chance.randint(1, 3)
    if not case_of(case).relayed:
        found = [_fault(chance, ["producer", "consumer"]) for _ in range(count)]
    else:
        found = [_fault(chance, ["relay"])]
        found += [_fault(chance, ["producer", "consumer", "relay"]) for _ in range(count - 1)]
    return tuple(sorted(found, key=lambda fault: fault.at))


def _fault(chance: random.Random, kinds: list[str]) -> Fault:
    frozen = chance.choice([0.0, 0.0, 0.3, 4.0])
    kind = chance.choice(kinds)
    count = {"producer": PRODUCERS, "consumer": CONSUMERS, "relay": 1}[kind]
    return Fault(round(chance.uniform(0.1, 2.0), 3), kind, chance.randrange(count), frozen)
