"""The map outputs of one shuffle: who won each map, and what was lost.

A map is in one of three states: not written (in neither dict), committed (has a winner), lost (has lost
attempts and no winner). The lost attempts of a map are kept for as long as the shuffle lives, so that a late
commit of one of them is refused by name.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from shuffle_api.errors import AttemptSuperseded, CommitMismatch, MapOutputLost, MapOutputNotWritten
from shuffle_api.ids import MapAttempt
from shuffle_api.registry.events import LostOutput, MapOutputCommitted, OutputMoved
from shuffle_api.values import MapOutput, ShuffleSpec, Totals

Places: TypeAlias = dict[tuple[str, ...], list[int]]
"""Of outputs by the workers that hold them: how many, and their sums, bytes first. Nothing is no entry."""


@dataclass(slots=True)
class ShuffleOutputs:
    """`winners` and `lost` by map number; `maps` are the keys of both, ascending, for paging.

    `places` has the sums of the winners (bytes, blocks, raw bytes, records), so that nobody goes through all of them.
    Only the registry that is its `owner` changes it: for others it is a part of a copy that they share.
    """

    spec: ShuffleSpec
    winners: dict[int, MapOutput] = field(default_factory=dict)
    lost: dict[int, tuple[LostOutput, ...]] = field(default_factory=dict)
    maps: list[int] = field(default_factory=list)
    places: Places = field(default_factory=dict)
    owner: object = field(default=None, compare=False)

    def clone(self, owner: object) -> ShuffleOutputs:
        """An equal one that nobody shares."""
        return replace(
            self,
            winners=dict(self.winners),
            lost=dict(self.lost),
            maps=list(self.maps),
            places={place: list(amount) for place, amount in self.places.items()},
            owner=owner,
        )

    @property
    def totals(self) -> Totals:
        """Of all winners; without a digest."""
        sums = [amount[1:] for amount in self.places.values()]
        size, blocks, raw_bytes, records = (sum(each) for each in zip(*sums, strict=True)) if sums else (0, 0, 0, 0)
        return Totals(blocks, size, raw_bytes, records)

    @property
    def degraded(self) -> int:
        """Winners that lie at fewer workers than the shuffle asks for."""
        return sum(amount[0] for place, amount in self.places.items() if len(place) < self.spec.replicas)

    def commit(self, output: MapOutput) -> MapOutputCommitted | OutputMoved | None:
        """Let the attempt win its map, or note one more worker that holds the winner; None if that is known already.
        Changes nothing when it raises.

        Map numbers are not held against `spec.maps`: engines may number their maps sparsely.

        :raises AttemptSuperseded: another attempt has won; the error names it.
        :raises CommitMismatch: this attempt has won with another statement.
        :raises MapOutputLost: this attempt had won and was lost.
        """
        attempt = output.output
        winner = self.winners.get(attempt.map)
        if winner is not None and winner.output == attempt and winner.totals == output.totals:
            if output.worker in winner.workers:
                return None
            return self._move(winner, replace(winner, copies=(*winner.copies, output.worker)))
        again = attempt.map in self.lost
        if again or winner is not None:
            self._check(output, winner)
        self.winners[attempt.map] = output
        self._add((output.worker,), output.totals)
        if not again:
            insort(self.maps, attempt.map)
        return MapOutputCommitted(self.spec.id, output)

    def lose(self, attempt: MapAttempt, reason: str, worker: str = "") -> LostOutput | OutputMoved | None:
        """Mark the attempt's output as lost at `worker` (empty: everywhere); None if it is not there, or not the winner
        of its map, so that nothing changes."""
        winner = self.winners.get(attempt.map)
        if winner is None or winner.output != attempt or (worker and worker not in winner.workers):
            return None
        rest = [each for each in winner.workers if worker and each != worker]
        if rest:
            return self._move(winner, winner.at(*rest))
        event = LostOutput(self.spec.id, winner.at(worker or winner.worker), reason)
        del self.winners[attempt.map]
        self._take(winner.workers, winner.totals)
        self.lost[attempt.map] = (*self.lost.get(attempt.map, ()), event)
        return event

    def _move(self, winner: MapOutput, moved: MapOutput) -> OutputMoved:
        self.winners[moved.output.map] = moved
        self._take(winner.workers, winner.totals)
        self._add(moved.workers, moved.totals)
        return OutputMoved(self.spec.id, moved)

    def _add(self, place: tuple[str, ...], totals: Totals) -> None:
        amount = self.places.get(place)
        if amount is None:
            self.places[place] = [1, totals.bytes, totals.blocks, totals.raw_bytes, totals.records]
            return
        amount[0] += 1
        amount[1] += totals.bytes
        amount[2] += totals.blocks
        amount[3] += totals.raw_bytes
        amount[4] += totals.records

    def _take(self, place: tuple[str, ...], totals: Totals) -> None:
        count, size, blocks, raw_bytes, records = self.places.pop(place)
        if count > 1:
            size, blocks = size - totals.bytes, blocks - totals.blocks
            self.places[place] = [count - 1, size, blocks, raw_bytes - totals.raw_bytes, records - totals.records]

    def held_by(self, worker: str) -> list[MapOutput]:
        """The committed outputs that lie at `worker`, or a copy of which does."""
        if not any(worker in place for place in self.places):
            return []
        return [winner for winner in self.winners.values() if worker in winner.workers]

    def count_at(self, worker: str) -> int:
        """How many of them there are."""
        return sum(amount[0] for place, amount in self.places.items() if worker in place)

    def get(self, map: int) -> MapOutput:
        """The committed output of `map`.

        :raises MapOutputLost: it is gone.
        :raises MapOutputNotWritten: there never was one.
        """
        winner = self.winners.get(map)
        if winner is not None:
            return winner
        if map in self.lost:
            last = self.lost[map][-1]
            raise _lost(last, f"the output of map {map} is lost: {last.reason}")
        raise MapOutputNotWritten(f"map {map} has not committed", shuffle=self.spec.id)

    def page(
        self, first: int, end: int | None, limit: int | None
    ) -> tuple[list[MapOutput], list[LostOutput], int | None]:
        """Of up to `limit` maps of [first, end) that were committed, ascending: the committed outputs, what `lost_now`
        has of the others, and the map the next page begins with, None after the last."""
        found: list[MapOutput] = []
        lost: list[LostOutput] = []
        for map in self._known(first, end):
            if len(found) + len(lost) == limit:
                return found, lost, map
            winner = self.winners.get(map)
            if winner is not None:
                found.append(winner)
            else:
                lost.append(self.lost[map][-1])
        return found, lost, None

    def lost_now(self, first: int, end: int | None) -> list[LostOutput]:
        """The last lost output of each map in [first, end) that has no winner since, ascending."""
        return [self.lost[map][-1] for map in self._known(first, end) if map not in self.winners]

    def losses(self) -> list[LostOutput]:
        """Every loss there was, ascending by map; those of one map in their order."""
        return [event for map in sorted(self.lost) for event in self.lost[map]]

    def _known(self, first: int, end: int | None) -> Iterator[int]:
        stop = len(self.maps) if end is None else bisect_left(self.maps, end)
        return (self.maps[at] for at in range(bisect_left(self.maps, first), stop))

    def _check(self, output: MapOutput, winner: MapOutput | None) -> None:
        attempt = output.output
        for event in self.lost.get(attempt.map, ()):
            if event.output.output == attempt:
                raise _lost(event, f"{attempt} has committed before and was lost: {event.reason}")
        if winner is None:
            return
        if winner.output == attempt:
            raise CommitMismatch(
                f"{attempt} has committed before, with {winner.totals} on {_named(winner)},"
                f" now it says {output.totals} on worker {output.worker}",
                worker=winner.worker,
                shuffle=self.spec.id,
                output=attempt,
            )
        raise AttemptSuperseded(
            f"attempt {winner.output.attempt} of map {attempt.map} has committed before attempt {attempt.attempt}",
            worker=winner.worker,
            shuffle=self.spec.id,
            output=winner.output,
        )


def put(places: Places, place: tuple[str, ...], count: int, size: int) -> None:
    """So many outputs and bytes more lie at a place, or fewer."""
    amount = places.get(place)
    if amount is None:
        places[place] = [count, size]
        return
    amount[0] += count
    amount[1] += size
    if not amount[0]:
        del places[place]


def _named(output: MapOutput) -> str:
    return f"worker {', '.join(output.workers)}"


def _lost(event: LostOutput, message: str) -> MapOutputLost:
    return MapOutputLost(message, worker=event.output.worker, shuffle=event.shuffle, output=event.output.output)
