"""The kinds of streaming jobs: what is guaranteed, whether it is logged to disk, and how tasks reach each other."""

from __future__ import annotations

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
