"""What the engine of a batch job was told of each map, and what must therefore be true of everything it reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from shuffle_api.values import MapOutput, ShuffleHandle
from tests.faults.explore import records
from tests.faults.explore.records import Record, Size, Source


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be. `kind` is one of `tests.faults.explore.records.KINDS`, or winner, dropped, hang,
    error, start, left."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


@dataclass(slots=True)
class Ledger:
    """Of one shuffle of one run. `number` counts the job's shuffles; the ids of the handle may come again.

    :param may_lose: whether a winner may have been lost without any call's having met that: then another attempt whose
        commit was asked for may win.
    """

    run: int
    number: int
    handle: ShuffleHandle
    size: Size
    maps: int
    may_lose: Callable[[], bool]
    allowed: dict[int, set[int]] = field(default_factory=dict)
    """The attempts of each map whose commit was asked for and not refused."""
    told: dict[int, int] = field(default_factory=dict)
    """The winner of each map, as the last commit said."""
    lost: set[tuple[int, int]] = field(default_factory=set)
    """Winners that were lost since: (map, attempt)."""
    next_attempt: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.allowed = {map: set() for map in range(self.maps)}

    def attempt(self, map: int) -> Source:
        """A new one."""
        number = self.next_attempt.get(map, 0)
        self.next_attempt[map] = number + 1
        return Source(self.run, self.number, map, number)

    def asked(self, source: Source) -> None:
        """Its commit is sent."""
        self.allowed[source.map].add(source.attempt)

    def refused(self, source: Source) -> None:
        """Its commit was refused for good."""
        self.allowed[source.map].discard(source.attempt)

    def acknowledged(self, source: Source, output: MapOutput) -> list[Finding]:
        """Its commit is answered with this winner."""
        map, winner = output.output.map, output.output.attempt
        found = self._agree(map, winner, f"the commit of {source}")
        if map != source.map:
            found.append(Finding("winner", f"the commit of {source} is answered with {output.output}"))
        self.told.setdefault(map, winner)
        return found

    def give_up(self, map: int) -> None:
        """What the map had is lost: it is run again."""
        if map in self.told:
            self.lost.add((map, self.told.pop(map)))

    def located(self, outputs: Sequence[MapOutput]) -> list[Finding]:
        """The master says that these have won."""
        found = []
        for output in outputs:
            found += self._agree(output.output.map, output.output.attempt, f"the master of {self.handle.spec.id}")
        return found

    def read(self, got: Sequence[Record], partitions: range, lost: Collection[tuple[int, int]] = ()) -> list[Finding]:
        """A read of all maps has come to its end with these records. `lost`: the winners that were, when it began."""
        wrong = records.problems(got, self.run, self.number, self.size, partitions, self.allowed)
        found = [Finding(problem.kind, problem.what) for problem in wrong]
        for map, attempt in records.attempts_in(got).items():
            if not wrong and (map, attempt) not in self.lost.difference(lost):  # else it had read that one before
                found += self._agree(map, attempt, f"a read of partitions {partitions}")
        return found

    def missing(self, there: Collection[int]) -> list[int]:
        return [map for map in range(self.maps) if map not in there]

    def _agree(self, map: int, winner: int, who: str) -> list[Finding]:
        if winner not in self.allowed.get(map, set()):
            asked = sorted(self.allowed.get(map, ()))
            return [Finding("refused", f"{who}: map {map} was won by attempt {winner}, of {asked} it was asked")]
        told = self.told.get(map)
        if told is not None and told != winner and self.may_lose():
            self.give_up(map)
            self.told[map] = winner
        elif told is not None and told != winner:
            return [Finding("winner", f"{who}: map {map} was won by attempt {winner}; acknowledged was {told}")]
        return []
