"""The map outputs of one shuffle: who won each map, and what was lost.

A map is in one of three states: not written (in neither dict), committed (has a winner), lost (has lost
attempts and no winner). The lost attempts of a map are kept for as long as the shuffle lives, so that a late
commit of one of them is refused by name.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from shuffle_api.errors import AttemptSuperseded, CommitMismatch, MapOutputLost, MapOutputNotWritten
from shuffle_api.ids import MapAttempt
from shuffle_api.registry.events import LostOutput, MapOutputCommitted, OutputMoved
from shuffle_api.values import MapOutput, ShuffleSpec


@dataclass(slots=True)
class ShuffleOutputs:
    """`winners` and `lost` by map number; `maps` are the keys of both, ascending, for paging.

    `bytes` is the payload of the winners, kept so that nobody has to go through all of them to know it. `shared` with a
    copy of the registry: whoever wants to change it changes a clone instead.
    """

    spec: ShuffleSpec
    winners: dict[int, MapOutput] = field(default_factory=dict)
    lost: dict[int, tuple[LostOutput, ...]] = field(default_factory=dict)
    maps: list[int] = field(default_factory=list)
    bytes: int = 0
    shared: bool = field(default=False, compare=False)

    def clone(self) -> ShuffleOutputs:
        """An equal one that nobody shares."""
        return ShuffleOutputs(self.spec, dict(self.winners), dict(self.lost), list(self.maps), self.bytes)

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
            self.winners[attempt.map] = replace(winner, copies=(*winner.copies, output.worker))
            return OutputMoved(self.spec.id, self.winners[attempt.map])
        self._check(output, winner)
        self.winners[attempt.map] = output
        self.bytes += output.totals.bytes
        if attempt.map not in self.lost:
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
            self.winners[attempt.map] = winner.at(*rest)
            return OutputMoved(self.spec.id, self.winners[attempt.map])
        event = LostOutput(self.spec.id, winner.at(worker or winner.worker), reason)
        del self.winners[attempt.map]
        self.bytes -= winner.totals.bytes
        self.lost[attempt.map] = (*self.lost.get(attempt.map, ()), event)
        return event

    def held_by(self, worker: str) -> list[MapAttempt]:
        """The committed attempts whose output, or a copy of it, lies at `worker`."""
        return [winner.output for winner in self.winners.values() if worker in winner.workers]

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

    def page(self, first: int, end: int | None, limit: int | None) -> tuple[list[MapOutput], int | None]:
        """Up to `limit` committed outputs of maps [first, end), ascending, and the map the next page begins with."""
        found: list[MapOutput] = []
        for map in self._known(first, end):
            if map in self.winners:
                if len(found) == limit:
                    return found, map
                found.append(self.winners[map])
        return found, None

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


def _named(output: MapOutput) -> str:
    return f"worker {', '.join(output.workers)}"


def _lost(event: LostOutput, message: str) -> MapOutputLost:
    return MapOutputLost(message, worker=event.output.worker, shuffle=event.shuffle, output=event.output.output)
